# The two targets that programs link, and `cmake --install`: the command, the libraries, their headers, and what
# find_package(lockstep) needs.
#
#   lockstep::comm      communicators on plain memory, without libtorch
#   lockstep::lockstep  everything, with the libtorch that it was built with
#
# The layers stay libraries of their own; these two names bring those that they need. They are the same with
# find_package(), add_subdirectory() and FetchContent. Each is an install component, too.
add_library(lockstep::comm ALIAS lockstep_comm)
if(TARGET lockstep_torch)
  set(lockstep_layers libtorch tensor optim model data_sources data weights parallel_data parallel_pipeline pipeline train_config train)
  add_library(lockstep_all INTERFACE)
  target_link_libraries(lockstep_all INTERFACE lockstep_comm lockstep_torch)
  foreach(layer ${lockstep_layers})
    if(TARGET lockstep_${layer})
      target_link_libraries(lockstep_all INTERFACE lockstep_${layer})
    endif()
  endforeach()
  add_library(lockstep::lockstep ALIAS lockstep_all)
endif()

# Sanitizers and the sources' folders are this build's business, not that of programs that use the package.
foreach(property INTERFACE_COMPILE_OPTIONS INTERFACE_LINK_OPTIONS INTERFACE_INCLUDE_DIRECTORIES)
  get_target_property(values lockstep_settings ${property})
  if(values)
    list(TRANSFORM values REPLACE "^(.+)$" "$<BUILD_INTERFACE:\\1>")
    set_target_properties(lockstep_settings PROPERTIES ${property} "${values}")
  endif()
endforeach()
target_compile_features(lockstep_settings INTERFACE cxx_std_20)
if(NOT LOCKSTEP_INSTALL)
  return()
endif()

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

target_include_directories(lockstep_settings INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# lockstep_package(COMPONENT LAYERS... HEADERS...): layers (those that this build has) and public headers.
function(lockstep_package component)
  cmake_parse_arguments(ARG "" "" "LAYERS;HEADERS" ${ARGN})
  foreach(layer ${ARG_LAYERS})
    if(TARGET lockstep_${layer})
      set_target_properties(lockstep_${layer} PROPERTIES EXPORT_NAME ${layer})
      install(TARGETS lockstep_${layer} EXPORT lockstep_${component}_targets
              ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component})
    endif()
  endforeach()
  list(TRANSFORM ARG_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/lockstep/)
  install(FILES ${ARG_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep COMPONENT ${component})
  install(EXPORT lockstep_${component}_targets NAMESPACE lockstep:: FILE lockstep-${component}.cmake
          DESTINATION ${package_folder} COMPONENT ${component})
endfunction()

lockstep_package(comm
  LAYERS settings base trace rendezvous transport collectives comm
  HEADERS buffer.h comm.h communicator.h error.h named_values.h options.h trace.h transport.h types.h work.h world.h)
install(TARGETS lockstep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT comm)
# For programs that are not built with CMake. The file finds its folders relative to its own.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY ${CMAKE_INSTALL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pkgconfig_include)
configure_file(${PROJECT_SOURCE_DIR}/cmake/lockstep-comm.pc.in ${PROJECT_BINARY_DIR}/lockstep-comm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lockstep-comm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT comm)

if(TARGET lockstep_torch)
  lockstep_package(lockstep
    LAYERS torch ${lockstep_layers} all
    HEADERS data.h data_parallel.h gradients.h kinds.h lockstep.h manual.h model.h optimizer.h pipeline.h schedule.h tensor.h
            training.h weights.h)
  set_target_properties(lockstep_all PROPERTIES EXPORT_NAME lockstep)
  install(TARGETS lockstep-torch RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT lockstep)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/libtorch.cmake ${PROJECT_SOURCE_DIR}/cmake/choose_torch.py
          DESTINATION ${package_folder} COMPONENT lockstep)

  # lockstep-torch finds its libtorch by a run path. One that pip put into the build folder goes with the package, because
  # build folders get removed; any other stays where it is. Debian's lies where the linker looks anyway.
  set(own_libtorch ${CMAKE_INSTALL_LIBDIR}/lockstep/libtorch)
  if(LOCKSTEP_LIBTORCH_SOURCE STREQUAL pip)
    install(DIRECTORY ${LOCKSTEP_LIBTORCH_FOLDER}/include DESTINATION ${own_libtorch} COMPONENT lockstep)
    install(DIRECTORY ${LOCKSTEP_LIBTORCH_LIB} DESTINATION ${own_libtorch} COMPONENT lockstep USE_SOURCE_PERMISSIONS
            FILES_MATCHING PATTERN "libtorch_cpu.so" PATTERN "libc10.so" PATTERN "libgomp*.so*"
            PATTERN "libshm*" EXCLUDE)
    cmake_path(RELATIVE_PATH own_libtorch BASE_DIRECTORY ${CMAKE_INSTALL_BINDIR} OUTPUT_VARIABLE from_bin)
    set_target_properties(lockstep-torch PROPERTIES INSTALL_RPATH "$ORIGIN/${from_bin}/lib")
  elseif(NOT LOCKSTEP_LIBTORCH_SOURCE STREQUAL debian)
    set_target_properties(lockstep-torch PROPERTIES INSTALL_RPATH ${LOCKSTEP_LIBTORCH_LIB})
  endif()
endif()

if(LOCKSTEP_LIBTORCH_SOURCE STREQUAL debian)
  set(lockstep_default_libtorch debian)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/package_config.cmake.in lockstepConfig.cmake
                              INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lockstepConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT comm)
