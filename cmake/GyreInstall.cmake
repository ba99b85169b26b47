# Install rules and the exported package: find_package(gyre) with gyre::gyre, and pkg-config's gyre.
# GyrePackage makes a Debian package of each component: runtime, modules, bench and dev; not of cuda.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)

set(GYRE_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/gyre")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/gyre" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev)
# Header-only; who includes it finds LibTorch for itself.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/bindings/torch/include/gyre" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        COMPONENT dev)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/bindings/c/include/gyre" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        COMPONENT dev)
install(TARGETS gyre gyre_c EXPORT gyreTargets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime NAMELINK_COMPONENT dev)
install(EXPORT gyreTargets NAMESPACE gyre:: DESTINATION "${GYRE_PACKAGE_DIR}" COMPONENT dev)

# gyre_install(COMPONENT TARGETS...): installs the programs and modules among TARGETS that this build has.
# GYRE_INSTALLED_<COMPONENT> lists them.
function(gyre_install component)
  foreach(target ${ARGN})
    if(TARGET ${target})
      install(TARGETS ${target} COMPONENT ${component}
              RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
      list(APPEND GYRE_INSTALLED_${component} ${target})
    endif()
  endforeach()
  set(GYRE_INSTALLED_${component} ${GYRE_INSTALLED_${component}} PARENT_SCOPE)
endfunction()
gyre_install(runtime gyrerun)
gyre_install(modules gyre_mpi gyre_ucx)
gyre_install(bench gyre-bench)
gyre_install(cuda gyre_cuda gyre_nccl gyre-bench-gpu)

# These programs load libgyre. They find it beside them wherever the tree lies.
file(RELATIVE_PATH GYRE_BIN_TO_LIB "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
foreach(program gyre-bench gyre-bench-gpu)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${GYRE_BIN_TO_LIB}")
  endif()
endforeach()

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/gyreConfig.cmake.in" "${PROJECT_BINARY_DIR}/gyreConfig.cmake"
  INSTALL_DESTINATION "${GYRE_PACKAGE_DIR}")
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/gyreConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/gyreConfig.cmake" "${PROJECT_BINARY_DIR}/gyreConfigVersion.cmake"
        DESTINATION "${GYRE_PACKAGE_DIR}" COMPONENT dev)

file(RELATIVE_PATH GYRE_PC_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${CMAKE_CURRENT_LIST_DIR}/gyre.pc.in" "${PROJECT_BINARY_DIR}/gyre.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/gyre.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)
