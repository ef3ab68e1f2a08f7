# libtorch: for the layers from model/ on, and for programs that include lockstep/comm/tensor.h.
#
# lockstep_torch                 interface target: includes (as system headers), libraries, flags
# lockstep_use_torch(TARGET...)  links it, and uses the one precompiled header
find_package(Torch QUIET)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "libtorch was not found. Try: apt-get install libtorch-dev (Debian 12 has 1.13); or "
                      "-DCMAKE_PREFIX_PATH=FOLDER for one from elsewhere; or -DLOCKSTEP_TORCH=OFF to build without it.")
endif()

add_library(lockstep_torch INTERFACE)
target_link_libraries(lockstep_torch INTERFACE ${TORCH_LIBRARIES})
target_include_directories(lockstep_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
separate_arguments(LOCKSTEP_TORCH_FLAGS UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(lockstep_torch INTERFACE ${LOCKSTEP_TORCH_FLAGS})

function(lockstep_use_torch)
  foreach(target ${ARGN})
    target_link_libraries(${target} PRIVATE lockstep_torch)
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
