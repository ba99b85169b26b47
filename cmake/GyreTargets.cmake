# How this project declares its targets.
include_guard(GLOBAL)

# What scripts/test-gpu builds.
add_custom_target(gpu)

# gyre_add_layer(NAME SOURCES... DEPENDS layers... LINK libraries...)
# One folder of src/ as an object library. The objects go into libgyre (shared, what users link) and into
# gyre_internal (static, hidden symbols reachable; what tests link).
function(gyre_add_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_library(gyre_${name} OBJECT ${arg_SOURCES})
  add_library(gyre::${name} ALIAS gyre_${name})
  target_include_directories(gyre_${name} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>"
    "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>")
  target_compile_definitions(gyre_${name} PRIVATE GYRE_BUILDING_LIBRARY)
  list(TRANSFORM arg_DEPENDS PREPEND gyre_)
  target_link_libraries(gyre_${name} PUBLIC ${arg_LINK} ${arg_DEPENDS} PRIVATE gyre_warnings)
endfunction()

# gyre_add_program(NAME SOURCES... LINK libraries...): a binary in build/<preset>/bin that users run.
function(gyre_add_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} gyre_warnings)
endfunction()

# gyre_add_test(NAME SOURCES... [LINK libraries...] [TIMEOUT seconds] [LABELS labels...])
# A GoogleTest binary in build/<preset>/tests; one CTest entry a binary. main() comes from tests/support.
# The label "gtest" tells scripts/test to expect a report of its cases.
function(gyre_add_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_link_libraries(${name} PRIVATE gyre_test_support gyre_internal ${arg_LINK} gyre_warnings)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "gtest;${arg_LABELS}")
endfunction()

# gyre_finds_gpus(TARGET): a test or program that loads libgyre_cuda.so where this build has it. scripts/test-gpu builds
# it, and runs it if it is a test: such are labelled "gpu".
function(gyre_finds_gpus target)
  add_dependencies(gpu ${target})
  if(TEST ${target})
    set_property(TEST ${target} APPEND PROPERTY LABELS gpu)
  endif()
  if(TARGET gyre_cuda)
    add_dependencies(${target} gyre_cuda)
    set_target_properties(${target} PROPERTIES BUILD_RPATH "$<TARGET_FILE_DIR:gyre_cuda>")
  endif()
endfunction()
