# lockstep_layer(NAME SOURCES... USES OTHER_LAYERS... LIBRARIES...): one static library a layer of docs/design.md.
function(lockstep_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_library(lockstep_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_settings fmt::fmt ${ARG_LIBRARIES})
  foreach(layer ${ARG_USES})
    target_link_libraries(lockstep_${name} PUBLIC lockstep_${layer})
  endforeach()
endfunction()
