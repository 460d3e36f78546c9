# What a folder's CMakeLists.txt needs to say: its sources, its public headers, its CPU variant.
# Main entry: anello_sources(), anello_install_headers(), anello_add_cpu_variant().

# Adds every .cpp of this folder, and of the sub-folders named, to libanello.so.
function(anello_sources)
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(sub ${ARGN})
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${sub}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(sources)
    target_sources(anello PRIVATE ${sources})
  endif()
endfunction()

# Installs headers (paths relative to this folder, or globs) below include/anello with their folder kept.
function(anello_install_headers)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  foreach(pattern ${ARGN})
    file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${pattern})
    get_filename_component(sub ${pattern} DIRECTORY)
    install(FILES ${headers} DESTINATION include/anello/${folder}/${sub})
  endforeach()
endfunction()

# libanello_cpu_<isa>.so from the kernel sources of core/cpu. Only the entry symbol leaves the library: its inlined templates,
# compiled for more than the baseline, must never be the ones that another library binds to.
function(anello_add_cpu_variant isa)
  anello_cpu_flags(${isa} isa_flags)
  set(target anello_cpu_${isa})
  add_library(${target} MODULE ${ARGN})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME anello_cpu_${isa} CXX_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_definitions(${target} PRIVATE ANELLO_CPU_ISA="${isa}")
  target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/include)
  target_compile_options(${target} PRIVATE ${isa_flags} $<IF:$<CONFIG:Debug>,-O1,-O3> -fno-math-errno -fno-trapping-math
                         -ffp-contract=fast $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  target_link_libraries(${target} PRIVATE Eigen3::Eigen)
  set(exports ${PROJECT_SOURCE_DIR}/cmake/plugin_exports.map)
  target_link_options(${target} PRIVATE -Wl,--version-script=${exports} -Wl,--gc-sections)
  if(NOT ANELLO_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)  # a kernel that needs libanello does not link
  endif()
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${exports})
  # Whoever builds libanello gets the variants too: it cannot compute without one.
  add_dependencies(anello ${target})
  install(TARGETS ${target} LIBRARY DESTINATION lib)
endfunction()

# libanello_mpi.so: needs no MPI to be built and links none; it opens the one that started the process.
function(anello_add_mpi_plugin)
  add_library(anello_mpi MODULE ${ARGN})
  set_target_properties(anello_mpi PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(anello_mpi PRIVATE cxx_std_20)
  target_compile_options(anello_mpi PRIVATE $<$<CONFIG:Release>:-O2>)
  target_include_directories(anello_mpi PRIVATE ${PROJECT_BINARY_DIR}/include)
  target_link_libraries(anello_mpi PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  set(exports ${PROJECT_SOURCE_DIR}/cmake/plugin_exports.map)
  target_link_options(anello_mpi PRIVATE -Wl,--version-script=${exports})
  set_target_properties(anello_mpi PROPERTIES LINK_DEPENDS ${exports})
  add_dependencies(anello anello_mpi)
  install(TARGETS anello_mpi LIBRARY DESTINATION lib)
endfunction()
