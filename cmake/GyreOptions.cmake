# The build's options. Each is a plain CMake cache variable; the presets set them.
include_guard(GLOBAL)

option(GYRE_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(GYRE_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(GYRE_BUILD_BENCH "Build gyre-bench" ${PROJECT_IS_TOP_LEVEL})
option(GYRE_WERROR "Warnings are errors: for work on Gyre, as each compiler has warnings of its own" OFF)
set(GYRE_UNIT_BYTES 60000 CACHE STRING "Sources are compiled as units of about so many bytes; 0: each by itself")
set(GYRE_SANITIZER "" CACHE STRING "what -fsanitize= takes (address,undefined or thread), or empty for none")
set(GYRE_TORCH "AUTO" CACHE STRING "The LibTorch adapter's test and example: ON, OFF, or AUTO (where it is found, \
and no sanitizer is on)")
set_property(CACHE GYRE_TORCH PROPERTY STRINGS AUTO ON OFF)
string(COMPARE NOTEQUAL "${GYRE_SANITIZER}" "" GYRE_SANITIZED)  # 0 or 1, for generator expressions

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
  # Compiled objects are shared between the build folders of clones. CCACHE_DEPEND: what a unit includes is taken from the
  # compilation itself; by default ccache preprocesses the unit before, which takes as long as parsing it.
  find_program(GYRE_CCACHE ccache)
  if(GYRE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER
        env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 "${GYRE_CCACHE}")
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  # The fastest linker there is.
  find_program(GYRE_LINKER NAMES ld.mold ld.lld)
  if(GYRE_LINKER)
    string(REGEX REPLACE ".*ld\\." "" linker "${GYRE_LINKER}")
    add_link_options(-fuse-ld=${linker})
  endif()
endif()
