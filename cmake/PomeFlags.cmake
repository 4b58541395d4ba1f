# Compiler flags: one interface target for all of our code, and per-file flags for CPU levels.
add_library(pome_flags INTERFACE)
target_compile_options(pome_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
  -Wwrite-strings -ffp-contract=off -fno-math-errno)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # gcc does not know that pome_fail never returns POME_OK, and so takes every `T x; POME_TRY(get(&x))` for a path on
  # which x is not set. clang's -Wsometimes-uninitialized and the sanitizers watch instead.
  target_compile_options(pome_flags INTERFACE -Wno-maybe-uninitialized)
endif()
if(POME_WERROR)
  target_compile_options(pome_flags INTERFACE -Werror)
endif()
if(POME_SANITIZE)
  target_compile_options(pome_flags INTERFACE -fsanitize=${POME_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${POME_SANITIZE})
endif()
if(POME_FUZZ) # edge counters for libFuzzer in the library too
  target_compile_options(pome_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# A kernel file's suffix is its level; only these files see more than the baseline instruction set.
function(pome_level_flags)
  foreach(file ${ARGN})
    if(file MATCHES "_avx2\\.c$")
      set(flags -mavx2 -mfma -mf16c)
    elseif(file MATCHES "_avx512\\.c$")
      set(flags -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl)
    elseif(file MATCHES "_avx512vnni\\.c$")
      set(flags -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
    elseif(file MATCHES "_amx\\.c$")
      set(flags -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mamx-tile -mamx-int8
        -mamx-bf16)
    elseif(file MATCHES "_dotprod\\.c$")
      set(flags -march=armv8.2-a+dotprod)
    elseif(file MATCHES "_i8mm\\.c$")
      set(flags -march=armv8.2-a+dotprod+i8mm)
    else()
      set(flags)
    endif()
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${flags}")
  endforeach()
endfunction()
