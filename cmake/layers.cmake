# A compiler spends most of its time in headers, so the files of a layer are compiled together, some at a time. Then a
# change in one of them compiles its neighbours as well: switch it off to work on one file for long.
option(LOCKSTEP_UNITY "Compile the files of a layer together" ON)

# lockstep_layer(NAME SOURCES... USES OTHER_LAYERS... LIBRARIES...): makes a static library from the files of a layer,
# or of a part of one. Each layer of docs/architecture.md is one or two of these.
function(lockstep_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_library(lockstep_${name} STATIC ${ARG_SOURCES})
  set_target_properties(lockstep_${name} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  target_link_libraries(lockstep_${name} PUBLIC lockstep_settings fmt::fmt ${ARG_LIBRARIES})
  foreach(layer ${ARG_USES})
    target_link_libraries(lockstep_${name} PUBLIC lockstep_${layer})
  endforeach()
endfunction()

# ccache passes over precompiled headers, and all that use them, unless it may ignore __TIME__ and the like in them.
function(lockstep_cache_precompiled target)
  if(CCACHE)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${CCACHE}")
  endif()
endfunction()
