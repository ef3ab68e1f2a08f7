# Warnings, sanitizers and ccache, as one interface target that every layer links.
add_library(lockstep_settings INTERFACE)
target_compile_options(lockstep_settings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wconversion
                                                   -Wno-sign-conversion -Werror)
target_include_directories(lockstep_settings INTERFACE ${PROJECT_SOURCE_DIR}/src)
# Asserts name files as they stand in the tree, not as they stood on the machine that built them.
target_compile_options(lockstep_settings INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)

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
