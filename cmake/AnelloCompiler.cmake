# Compiler settings that hold for every target: standard, warnings, sanitizers, ccache, output folders.
# Main entry: included by the root CMakeLists.txt before any target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
  endif()
endif()

# libanello.so and the CPU variants must end up in one folder: the loader looks beside libanello.so.
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Checkouts of one source share ccache entries: paths below the source root count as relative, and where debug information
# says the build folder is does not matter.
find_program(ANELLO_CCACHE ccache)
if(ANELLO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${ANELLO_CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow)
if(ANELLO_WERROR)
  add_compile_options(-Werror)
endif()

if(ANELLO_SANITIZE)
  if(NOT ANELLO_SANITIZE MATCHES "^(address,undefined|address|undefined|thread)$")
    message(FATAL_ERROR "[cmake] ANELLO_SANITIZE=${ANELLO_SANITIZE} is unknown. Hint: address,undefined or thread.")
  endif()
  # A finding must fail the test, so nothing recovers.
  add_compile_options(-fsanitize=${ANELLO_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # GCC sees uninitialised values in instrumented code of the standard library that are none; it documents so.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${ANELLO_SANITIZE})
endif()
