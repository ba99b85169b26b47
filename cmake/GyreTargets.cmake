# How this project declares its targets.
include_guard(GLOBAL)

# What scripts/test builds in the release build: all that its tests run. Without what takes long to compile and few
# change: CUDA's code, and what includes LibTorch.
add_custom_target(test_programs)
# What scripts/test builds under sanitizers.
add_custom_target(sanitized)
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
  list(TRANSFORM arg_DEPENDS PREPEND gyre_)
  target_link_libraries(gyre_${name} PUBLIC ${arg_LINK} ${arg_DEPENDS} PRIVATE gyre_warnings)
endfunction()

# gyre_add_program(NAME SOURCES... LINK libraries...): a binary in build/<preset>/bin that users run.
function(gyre_add_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} gyre_warnings)
endfunction()

# gyre_add_campaign(NAME SOURCES... [LINK libraries...] ROUNDS n): a program that scripts/campaign runs, and a CTest
# entry that runs a small part of it.
function(gyre_add_campaign name)
  cmake_parse_arguments(arg "" "ROUNDS" "SOURCES;LINK" ${ARGN})
  gyre_add_test_helper(${name} SOURCES ${arg_SOURCES} LINK gyre_test_support gyre_internal ${arg_LINK})
  target_include_directories(${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  if(arg_ROUNDS)
    add_test(NAME ${name} COMMAND ${name} --seed 1 --rounds ${arg_ROUNDS})
  endif()
endfunction()

# gyre_add_test_helper(NAME SOURCES... LINK libraries...): a program in build/<preset>/tests that tests start.
function(gyre_add_test_helper name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${arg_LINK} gyre_warnings)
  set_property(GLOBAL APPEND PROPERTY GYRE_TEST_PROGRAMS ${name})
endfunction()

# gyre_add_test_program(NAME [LINK libraries...] [RUNS MACRO target MACRO target...])
# The GoogleTest program of a folder; gyre_add_test adds its sources and its CTest entries. main() comes from
# tests/support. RUNS: programs and modules that the tests start or load: they are built before, and MACRO is the path
# of each, as a string.
function(gyre_add_test_program name)
  cmake_parse_arguments(arg "" "" "LINK;RUNS" ${ARGN})
  gyre_add_test_helper(${name} LINK gyre_test_support gyre_internal ${arg_LINK})
  while(arg_RUNS)
    list(POP_FRONT arg_RUNS macro target)
    target_compile_definitions(${name} PRIVATE ${macro}="$<TARGET_FILE:${target}>")
    add_dependencies(${name} ${target})
  endwhile()
endfunction()

# gyre_add_test(NAME [PROGRAM program] SOURCES... [LINK libraries...] [RUNS ...] [LABELS labels...])
# Adds SOURCES to PROGRAM, and a CTest entry that runs the cases which those called *_test.cc define. Without PROGRAM the
# entry has a program of its own, with its name; only then are there LINK and RUNS. The label "gtest" tells scripts/test
# to expect a report.
function(gyre_add_test name)
  cmake_parse_arguments(arg "" "PROGRAM" "SOURCES;LINK;RUNS;LABELS" ${ARGN})
  set(command ${name})
  if(arg_PROGRAM)
    if(arg_LINK OR arg_RUNS)
      message(FATAL_ERROR "${name}: LINK and RUNS are those of ${arg_PROGRAM}: give them to gyre_add_test_program")
    endif()
    set(tests ${arg_SOURCES})
    list(FILTER tests INCLUDE REGEX "_test\\.cc$")
    list(JOIN tests "," tests)
    set(command ${arg_PROGRAM} "--sources=${tests}")
  else()
    set(arg_PROGRAM ${name})
    gyre_add_test_program(${name} LINK ${arg_LINK} RUNS ${arg_RUNS})
  endif()
  target_sources(${arg_PROGRAM} PRIVATE ${arg_SOURCES})
  set_source_files_properties(${arg_SOURCES} PROPERTIES UNITY_GROUP ${name})  # a unit is of one entry's sources
  gyre_add_test_entry(${name} COMMAND ${command} LABELS ${arg_LABELS})
  if("sanitized" IN_LIST arg_LABELS OR ("asan" IN_LIST arg_LABELS AND GYRE_SANITIZER MATCHES address))
    add_dependencies(sanitized ${arg_PROGRAM})
  endif()
endfunction()

# gyre_add_test_entry(NAME COMMAND program arguments... [LABELS labels...] [ENVIRONMENT variables...])
# A CTest entry that runs a GoogleTest program.
function(gyre_add_test_entry name)
  cmake_parse_arguments(arg "" "" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES
    LABELS "gtest;${arg_LABELS}"
    ENVIRONMENT "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/test-results/${name}.xml;${arg_ENVIRONMENT}")
endfunction()

# gyre_finds_gpus(NAME PROGRAM): a CTest entry, or a program, whose program loads libgyre_cuda.so if it is built by then.
# scripts/test-gpu builds both and runs the entry: such are labelled "gpu". scripts/test builds the module only in a part
# of --all, but once it is there keeps it up to date.
function(gyre_finds_gpus name program)
  add_dependencies(gpu ${program})
  if(TEST ${name})
    set_property(TEST ${name} APPEND PROPERTY LABELS gpu)
  endif()
  if(TARGET gyre_cuda)
    add_dependencies(gpu gyre_cuda)
    set_target_properties(${program} PROPERTIES BUILD_RPATH "$<TARGET_FILE_DIR:gyre_cuda>")
  endif()
endfunction()
