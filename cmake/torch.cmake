# libtorch: for the layers from libtorch/ on, and for programs that include lockstep/tensor.h.
#
# lockstep_torch                 interface target: includes (as system headers) and libraries
# lockstep_use_torch(TARGET...)  links it, and uses the one precompiled header
include(cmake/libtorch.cmake)
lockstep_find_libtorch(VENV ${LOCKSTEP_TORCH_VENV})
file(WRITE ${PROJECT_BINARY_DIR}/torch.json "${lockstep_answer}")  # for tests, benchmarks and `dev`

add_library(lockstep_torch INTERFACE)
target_link_libraries(lockstep_torch INTERFACE lockstep::libtorch_libraries)
# A wheel brings the headers of another fmt than the one that the layers below libtorch link. Its name is another one too
# (the inline namespace v12), so both can live in one program, and this one has no library: it is used as headers alone.
list(GET LOCKSTEP_LIBTORCH_INCLUDE 0 libtorch_headers)
if(NOT LOCKSTEP_LIBTORCH_SOURCE STREQUAL debian AND EXISTS ${libtorch_headers}/fmt/format.h)
  target_compile_definitions(lockstep_torch INTERFACE $<BUILD_INTERFACE:FMT_HEADER_ONLY=1>)
endif()

# The layers that use libtorch leave the arithmetic to it (and the loops of optim/kernel.h have flags of their own), so -O3 would only make
# the compiler work longer. Their tests need even less.
set(LOCKSTEP_TORCH_OPTIMIZATION -O2)

function(lockstep_use_torch)
  foreach(target ${ARGN})
    target_link_libraries(${target} PRIVATE lockstep_torch)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${LOCKSTEP_TORCH_OPTIMIZATION}>)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE 14)
    target_precompile_headers(${target} REUSE_FROM lockstep_torch_headers)
    lockstep_cache_precompiled(${target})
  endforeach()
endfunction()

# A precompiled header belongs to a target with sources; the others borrow it. g++ refuses it (an error here) when their
# flags differ. Not torch/torch.h: that one takes twice as long to load, and few files need it.
file(CONFIGURE OUTPUT torch_headers.cpp CONTENT "")
add_library(lockstep_torch_headers OBJECT ${CMAKE_CURRENT_BINARY_DIR}/torch_headers.cpp)
target_link_libraries(lockstep_torch_headers PRIVATE lockstep_settings lockstep_torch)
target_compile_options(lockstep_torch_headers PRIVATE $<$<CONFIG:Release>:${LOCKSTEP_TORCH_OPTIMIZATION}>)
target_precompile_headers(lockstep_torch_headers PRIVATE <torch/types.h>)
lockstep_cache_precompiled(lockstep_torch_headers)
