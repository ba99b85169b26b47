# Install rules and the exported package: find_package(gyre) with gyre::gyre, and pkg-config's gyre.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)

set(GYRE_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/gyre")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/gyre" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
# Header-only; who includes it finds LibTorch for itself.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/bindings/torch/include/gyre" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/bindings/c/include/gyre" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(TARGETS gyre gyre_c EXPORT gyreTargets)
foreach(module gyre_mpi gyre_ucx gyre_cuda gyre_nccl)
  if(TARGET ${module})
    install(TARGETS ${module} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endif()
endforeach()
install(EXPORT gyreTargets NAMESPACE gyre:: DESTINATION "${GYRE_PACKAGE_DIR}")

# The programs: those of this build (gyre-bench is an option). They find libgyre beside them wherever the tree lies.
file(RELATIVE_PATH GYRE_BIN_TO_LIB "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
foreach(program gyrerun gyre-bench gyre-bench-gpu)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${GYRE_BIN_TO_LIB}")
    install(TARGETS ${program})
  endif()
endforeach()

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/gyreConfig.cmake.in" "${PROJECT_BINARY_DIR}/gyreConfig.cmake"
  INSTALL_DESTINATION "${GYRE_PACKAGE_DIR}")
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/gyreConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/gyreConfig.cmake" "${PROJECT_BINARY_DIR}/gyreConfigVersion.cmake"
        DESTINATION "${GYRE_PACKAGE_DIR}")

file(RELATIVE_PATH GYRE_PC_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${CMAKE_CURRENT_LIST_DIR}/gyre.pc.in" "${PROJECT_BINARY_DIR}/gyre.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/gyre.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
