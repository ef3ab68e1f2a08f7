# lockstep_find_libtorch([VENV FOLDER] [PACKAGE FOLDER] [VERSION V] [DEFAULT WORD] [NO_INSTALL]): makes the imported target
# lockstep::libtorch_libraries. The build and the installed package both use it. choose_torch.py says in which order it
# looks; DEFAULT is what LOCKSTEP_TORCH is taken for if it is not set.
#
# Not find_package(Torch): with a wheel beside Debian's libtorch-dev, PyTorch's own CMake files take Debian's library with
# the wheel's headers, and with a PyTorch for CUDA they require the CUDA toolkit. Lockstep needs torch_cpu and c10 alone.
#
# Sets LOCKSTEP_LIBTORCH_VERSION, _SOURCE, _FOLDER, _LIB, _BUILD_IDS, and _PYTHON: an interpreter that imports this PyTorch.
set(LOCKSTEP_CHOOSE_TORCH ${CMAKE_CURRENT_LIST_DIR}/choose_torch.py)

macro(lockstep_find_libtorch)
  cmake_parse_arguments(ARG "NO_INSTALL" "VENV;PACKAGE;VERSION;DEFAULT" "" ${ARGN})
  set(lockstep_want "${LOCKSTEP_TORCH}")
  if(NOT lockstep_want)
    set(lockstep_want "$ENV{LOCKSTEP_TORCH}")
  endif()
  if(lockstep_want STREQUAL "ON")
    set(lockstep_want "")
  elseif(IS_DIRECTORY "${lockstep_want}")
    get_filename_component(lockstep_want "${lockstep_want}" ABSOLUTE BASE_DIR "${CMAKE_SOURCE_DIR}")
  endif()
  if(NOT lockstep_want AND ARG_DEFAULT)
    set(lockstep_want ${ARG_DEFAULT})
  endif()
  if(NOT ARG_VENV)
    set(ARG_VENV ${CMAKE_BINARY_DIR}/torch)
  endif()
  set(lockstep_options --venv "${ARG_VENV}" "--want=${lockstep_want}")
  if(ARG_PACKAGE)
    list(APPEND lockstep_options --package "${ARG_PACKAGE}")
  endif()
  if(ARG_NO_INSTALL)
    list(APPEND lockstep_options --no-install)
  endif()
  # The python3 on the PATH, as a shell would find it: an active virtual environment comes first.
  find_program(LOCKSTEP_PATH_PYTHON NAMES python3 NO_CACHE)
  if(NOT LOCKSTEP_PATH_PYTHON)
    message(FATAL_ERROR "lockstep: python3 is needed to choose a libtorch, and there is none on the PATH")
  endif()
  execute_process(COMMAND ${LOCKSTEP_PATH_PYTHON} ${LOCKSTEP_CHOOSE_TORCH} ${lockstep_options}
                  OUTPUT_VARIABLE lockstep_answer RESULT_VARIABLE lockstep_code)
  if(NOT lockstep_code EQUAL 0)
    message(FATAL_ERROR "lockstep: no libtorch was chosen; the line above says why")
  endif()
  foreach(name SOURCE VERSION FOLDER LIB PYTHON)
    string(TOLOWER ${name} lockstep_key)
    string(JSON LOCKSTEP_LIBTORCH_${name} GET "${lockstep_answer}" ${lockstep_key})
  endforeach()
  if(NOT LOCKSTEP_LIBTORCH_VERSION)
    message(FATAL_ERROR "lockstep: there is no libtorch. Try one of: a PyTorch of 2.6 or newer that python3 imports; "
                        "-DLOCKSTEP_TORCH=FOLDER for a libtorch from elsewhere; apt-get install libtorch-dev (1.13); "
                        "-DLOCKSTEP_TORCH=OFF to build what works without it")
  endif()
  foreach(list include libraries build_ids)
    set(lockstep_${list} "")
    string(JSON lockstep_count LENGTH "${lockstep_answer}" ${list})
    math(EXPR lockstep_last "${lockstep_count} - 1")
    foreach(index RANGE ${lockstep_last})
      string(JSON lockstep_item GET "${lockstep_answer}" ${list} ${index})
      list(APPEND lockstep_${list} "${lockstep_item}")
    endforeach()
  endforeach()
  set(LOCKSTEP_LIBTORCH_BUILD_IDS ${lockstep_build_ids})
  set(LOCKSTEP_LIBTORCH_INCLUDE ${lockstep_include})
  set(LOCKSTEP_LIBTORCH_LIBRARIES ${lockstep_libraries})

  if(ARG_VERSION AND NOT LOCKSTEP_LIBTORCH_VERSION VERSION_EQUAL ARG_VERSION)
    set(lockstep_FOUND FALSE)
    set(lockstep_NOT_FOUND_MESSAGE
        "lockstep was built with libtorch ${ARG_VERSION}, and ${LOCKSTEP_LIBTORCH_FOLDER} has ${LOCKSTEP_LIBTORCH_VERSION}. Try -DLOCKSTEP_TORCH=FOLDER, where FOLDER has ${ARG_VERSION}")
    return()
  endif()

  if(NOT TARGET lockstep::libtorch_libraries)
    add_library(lockstep::libtorch_libraries INTERFACE IMPORTED GLOBAL)
    target_include_directories(lockstep::libtorch_libraries SYSTEM INTERFACE ${lockstep_include})
    target_link_libraries(lockstep::libtorch_libraries INTERFACE ${lockstep_libraries})
  endif()
endmacro()
