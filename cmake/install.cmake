# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)
set(_dir ${CMAKE_INSTALL_LIBDIR}/cmake/vlbatch)
install(TARGETS vlbatch vlbatch_cpu EXPORT vlbatch-targets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT vlbatch-targets NAMESPACE vlbatch:: DESTINATION ${_dir})
configure_package_config_file(cmake/vlbatch-config.cmake.in ${PROJECT_BINARY_DIR}/vlbatch-config.cmake INSTALL_DESTINATION ${_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/vlbatch-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/vlbatch-config.cmake ${PROJECT_BINARY_DIR}/vlbatch-config-version.cmake cmake/dependencies.cmake DESTINATION ${_dir})
