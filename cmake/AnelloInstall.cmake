# Install tree and package files: lib/, include/anello/, lib/cmake/anello/ (find_package(anello) -> anello::anello).
# Main entry: included last by the root CMakeLists.txt. A wheel is the same tree inside the Python package.
include(CMakePackageConfigHelpers)

# The build tree has the same shape as the install tree, so that one rule finds the config file in both.
set(package_dir ${PROJECT_BINARY_DIR}/lib/cmake/anello)
configure_package_config_file(cmake/anelloConfig.cmake.in ${package_dir}/anelloConfig.cmake
                              INSTALL_DESTINATION lib/cmake/anello NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${package_dir}/anelloConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS anello EXPORT anelloTargets LIBRARY DESTINATION lib)
export(EXPORT anelloTargets NAMESPACE anello:: FILE ${package_dir}/anelloTargets.cmake)
install(EXPORT anelloTargets NAMESPACE anello:: DESTINATION lib/cmake/anello)
install(FILES ${package_dir}/anelloConfig.cmake ${package_dir}/anelloConfigVersion.cmake DESTINATION lib/cmake/anello)
