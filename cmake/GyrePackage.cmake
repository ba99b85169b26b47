# Man pages, bash completion, and the packages that CPack makes of what GyreInstall installs: docs/packages.md.
# The target gyre_debian builds what the Debian packages hold; gyre_packaged also builds the rest of the tarball.
include_guard(GLOBAL)

set(GYRE_DOC_DIR "${CMAKE_INSTALL_DATAROOTDIR}/doc")
add_custom_target(gyre_debian ALL)
add_dependencies(gyre_debian gyre gyre_c ${GYRE_INSTALLED_runtime} ${GYRE_INSTALLED_modules} ${GYRE_INSTALLED_bench})
add_custom_target(gyre_packaged)
add_dependencies(gyre_packaged gyre_debian ${GYRE_INSTALLED_cuda})

# Man pages are --help and --version. Not under a sanitizer, whose programs may not run in every place that builds them.
find_program(GYRE_HELP2MAN help2man)
if(NOT GYRE_HELP2MAN)
  message(STATUS "Gyre: no man pages: help2man was not found")
endif()
# gyre_document(PROGRAM COMPONENT HELP_OPTION SUMMARY): installs PROGRAM's man page and bash completion.
function(gyre_document program component help_option summary)
  install(FILES "${PROJECT_SOURCE_DIR}/packaging/completions/${program}"
          DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions" COMPONENT ${component})
  if(NOT GYRE_HELP2MAN OR GYRE_SANITIZER)
    return()
  endif()
  set(page "${PROJECT_BINARY_DIR}/man/${program}.1")
  add_custom_command(OUTPUT "${page}.gz" VERBATIM
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${PROJECT_BINARY_DIR}/man"
    COMMAND "${GYRE_HELP2MAN}" --no-info --help-option=${help_option} --name=${summary} --output=${page}
            "$<TARGET_FILE:${program}>"
    COMMAND gzip -9nf "${page}"
    DEPENDS ${program} COMMENT "Man page ${program}(1)")
  add_custom_target(${program}_man DEPENDS "${page}.gz")
  add_dependencies(gyre_debian ${program}_man)
  install(FILES "${page}.gz" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT ${component} OPTIONAL)  # if built
endfunction()
gyre_document(gyrerun runtime --help "start a program as the ranks of one Gyre job")
if(TARGET gyre-bench)
  gyre_document(gyre-bench bench --help-all "measure Gyre's collectives and training steps")
endif()

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

set(CPACK_PACKAGE_VENDOR "The Gyre authors")
set(CPACK_PACKAGE_CONTACT "The Gyre authors <maintainers@example.org>"
    CACHE STRING "Maintainer of the packages: NAME <ADDRESS>")
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)  # compresses on all cores

# The tarball: all components under one folder. It works wherever it is unpacked.
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${GYRE_DOC_DIR}/gyre" COMPONENT tarball)
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_FILE_NAME "gyre-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")

# The Debian packages: one a component. dpkg-shlibdeps finds what each depends on. gyre itself needs no MPI, UCX or Gloo
# (on a bare Debian 12 apt downloads 3.3 MB for it), so what needs them is in gyre-modules and gyre-bench. The component
# cuda has no package: CUDA and NCCL are often installed by hand, and a package cannot depend on that.
find_program(GYRE_DPKG_SHLIBDEPS dpkg-shlibdeps)
if(GYRE_DPKG_SHLIBDEPS)
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL "")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
string(TIMESTAMP GYRE_PACKAGE_DATE "%Y-%m-%d" UTC)  # of SOURCE_DATE_EPOCH, where that is set
string(TIMESTAMP GYRE_PACKAGE_TIME "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file("${PROJECT_SOURCE_DIR}/packaging/changelog.in" "${PROJECT_BINARY_DIR}/packaging/changelog" @ONLY)
execute_process(COMMAND gzip -9nf "${PROJECT_BINARY_DIR}/packaging/changelog" COMMAND_ERROR_IS_FATAL ANY)

# gyre_debian_package(COMPONENT NAME SECTION SUMMARY DESCRIPTION [DEPENDS packages] [RECOMMENDS packages]
#                     [SUGGESTS packages])
function(gyre_debian_package component name section summary description)
  cmake_parse_arguments(arg "" "DEPENDS;RECOMMENDS;SUGGESTS" "" ${ARGN})
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_DESCRIPTION "data-parallel training runtime: ${summary}\n${description}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${arg_DEPENDS}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_RECOMMENDS "${arg_RECOMMENDS}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SUGGESTS "${arg_SUGGESTS}" PARENT_SCOPE)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
  install(FILES "${PROJECT_SOURCE_DIR}/packaging/copyright" "${PROJECT_BINARY_DIR}/packaging/changelog.gz"
          DESTINATION "${GYRE_DOC_DIR}/${name}" COMPONENT ${component})
endfunction()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_NAME} built using CMake")  # CPack's default: it adds nothing to ours
set(gyre_same_version "gyre (= ${PROJECT_VERSION})")
gyre_debian_package(runtime gyre libs "library and launcher"
"Gyre averages the gradients of a training program's ranks over shared memory
and TCP. This package holds libgyre, its C interface libgyre_c, and gyrerun,
which starts a program as the ranks of one job."
  SUGGESTS "gyre-bench, gyre-modules")
gyre_debian_package(dev gyre-dev libdevel "development files"
"Headers of Gyre, and what CMake's find_package(gyre) and pkg-config need."
  DEPENDS "${gyre_same_version}, libabsl-dev" SUGGESTS "cmake, pkg-config, libtorch-dev")
if(TARGET gyre_mpi OR TARGET gyre_ucx)
  gyre_debian_package(modules gyre-modules libs "MPI and UCX"
"libgyre loads these modules for GYRE_BACKEND=mpi and GYRE_BACKEND=ucx, and the
one of UCX by itself where all ranks can use RDMA."
    DEPENDS "${gyre_same_version}" RECOMMENDS openmpi-bin)
endif()
if(TARGET gyre-bench)
  gyre_debian_package(bench gyre-bench utils "benchmarks"
"gyre-bench measures Gyre's collectives and training steps, beside those of
MPI and Gloo."
    DEPENDS "${gyre_same_version}" SUGGESTS openmpi-bin)
endif()
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/packaging/triggers")  # ldconfig
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")

include(CPack)
