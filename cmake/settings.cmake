# Include folders and sanitizers, as one interface target that every layer links; warnings and ccache for this project.
add_library(lockstep_settings INTERFACE)
target_include_directories(lockstep_settings INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)

# These options belong to the folders of this project, and never reach a program that uses Lockstep.
# Warnings are errors for the compiler that Lockstep is tested with. Newer ones have new warnings, which must not keep
# anybody from building it.
set(tested_compiler OFF)
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(tested_compiler ON)
endif()
option(LOCKSTEP_WERROR "Treat warnings in Lockstep's own code as errors" ${tested_compiler})
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wconversion -Wno-sign-conversion)
if(LOCKSTEP_WERROR)
  add_compile_options(-Werror)
endif()
# Asserts name files as they stand in the tree, not as they stood on the machine that built them.
add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
# The static libraries can go into a shared library or a Python module. Calls inside of Lockstep stay direct.
add_compile_options(-fPIC -fno-semantic-interposition)

set(LOCKSTEP_SANITIZE "" CACHE STRING "sanitizers to build with: address,undefined or thread")
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_settings INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer
                                                     -fno-sanitize-recover=all)
  # g++ 12 warns that the thread sanitizer does not model atomic_thread_fence; the queues synchronise by atomic
  # loads and stores as well, which it does see.
  target_compile_options(lockstep_settings INTERFACE -Wno-error=tsan -Wno-tsan)
  target_link_options(lockstep_settings INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
