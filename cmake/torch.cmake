# libtorch: for the layers from model/ on, and for programs that include lockstep/comm/tensor.h.
#
# lockstep_torch                 interface target: includes (as system headers) and libraries
# lockstep_use_torch(TARGET...)  links it, and uses the one precompiled header
include(cmake/libtorch.cmake)
lockstep_find_libtorch(VENV ${LOCKSTEP_TORCH_VENV})

add_library(lockstep_torch INTERFACE)
target_link_libraries(lockstep_torch INTERFACE lockstep::libtorch)
# A wheel brings the headers of another fmt than the one that the layers below libtorch link. Its name is another one too
# (the inline namespace v12), so both can live in one program, and this one has no library: it is used as headers alone.
list(GET LOCKSTEP_LIBTORCH_INCLUDE 0 libtorch_headers)
if(NOT LOCKSTEP_LIBTORCH_SOURCE STREQUAL debian AND EXISTS ${libtorch_headers}/fmt/format.h)
  target_compile_definitions(lockstep_torch INTERFACE $<BUILD_INTERFACE:FMT_HEADER_ONLY=1>)
endif()

# Most of the time of compiling a file goes into libtorch's headers, so the files of a layer are compiled together. Then
# a change in one of them compiles all of them: switch it off to work on one layer for long.
option(LOCKSTEP_UNITY "Compile the files of a layer that uses libtorch together" ON)

function(lockstep_use_torch)
  foreach(target ${ARGN})
    target_link_libraries(${target} PRIVATE lockstep_torch)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE 8)
    target_precompile_headers(${target} REUSE_FROM lockstep_torch_headers)
    lockstep_cache_precompiled(${target})
  endforeach()
endfunction()

# ccache passes over precompiled headers, and all that use them, unless it may ignore __TIME__ and the like in them.
function(lockstep_cache_precompiled target)
  if(CCACHE)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${CCACHE}")
  endif()
endfunction()

# A precompiled header belongs to a target with sources; the others borrow it. g++ refuses it (an error here) when their
# flags differ. Not torch/torch.h: that one takes twice as long to load, and few files need it.
file(CONFIGURE OUTPUT torch_headers.cpp CONTENT "")
add_library(lockstep_torch_headers OBJECT ${CMAKE_CURRENT_BINARY_DIR}/torch_headers.cpp)
target_link_libraries(lockstep_torch_headers PRIVATE lockstep_settings lockstep_torch)
target_precompile_headers(lockstep_torch_headers PRIVATE <torch/types.h>)
lockstep_cache_precompiled(lockstep_torch_headers)
