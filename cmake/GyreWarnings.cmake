# gyre_warnings: how this project's C++ is compiled: warnings, arithmetic, sanitizers. Linked privately, never exported.
include_guard(GLOBAL)

add_library(gyre_warnings INTERFACE)
target_compile_options(gyre_warnings INTERFACE -Wall -Wextra)
# In a unit of several sources GCC takes each for a header, in which nothing may hold a type of an anonymous namespace.
if(GYRE_UNIT_BYTES)
  target_compile_options(gyre_warnings INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>")
endif()
# The same bits on every machine: no fused multiply-adds. Nobody reads errno or signals of arithmetic, and keeping them
# keeps loops from vectorising.
target_compile_options(gyre_warnings INTERFACE -ffp-contract=off -fno-math-errno -fno-trapping-math)
# New in GCC 13, and wrong about references into what spans and views only point to.
target_compile_options(gyre_warnings INTERFACE
  "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-reference>")
if(GYRE_WERROR)
  target_compile_options(gyre_warnings INTERFACE -Werror)
endif()
if(GYRE_SANITIZER)
  # UndefinedBehaviorSanitizer only prints what it finds, and goes on, unless recovery is off.
  target_compile_options(gyre_warnings INTERFACE
    -fsanitize=${GYRE_SANITIZER} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(GYRE_SANITIZER MATCHES undefined)
    # These checks take a third of the time to compile. AddressSanitizer finds what the first two find; of tests' own code
    # the others find little.
    target_compile_options(gyre_warnings INTERFACE
      -fno-sanitize=null,object-size "$<$<BOOL:$<TARGET_PROPERTY:GYRE_TEST>>:-fno-sanitize=alignment,vptr>")
  endif()
  target_link_options(gyre_warnings INTERFACE -fsanitize=${GYRE_SANITIZER})
  # GCC's instrumentation hides initialisations from this warning (in <regex>, for one); the plain builds keep it.
  target_compile_options(gyre_warnings INTERFACE -Wno-maybe-uninitialized)
endif()
