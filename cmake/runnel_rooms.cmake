# How a room is built, for the project and for what builds some of its rooms alone (tests/cross). RN_ROOT: the source.

# Flags of every target of ours. No -ffast-math, no -march: SIMD files carry their own flags. No
# contraction: the same expression gives the same bits in every function it is inlined into.
add_library(rn_flags INTERFACE)
target_include_directories(rn_flags INTERFACE ${RN_ROOT} ${RN_ROOT}/include)
target_compile_options(rn_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -ffp-contract=off>)
if(RUNNEL_WERROR)
    target_compile_options(rn_flags INTERFACE -Werror)
endif()

# rn_room(name SOURCE...): the objects of one room; they go into both libraries.
function(rn_room name)
    add_library(rn_${name} OBJECT ${ARGN})
    target_link_libraries(rn_${name} PRIVATE rn_flags)
    if(RUNNEL_ASSERTS AND name MATCHES "^(mailbox|cache|actors)$")
        target_compile_options(rn_${name} PRIVATE -UNDEBUG)
    endif()
    set_property(GLOBAL APPEND PROPERTY RN_ROOMS ${name})
endfunction()

# rn_simd(SOURCE FLAG...): flags of one SIMD file.
function(rn_simd source)
    string(JOIN " " flags ${ARGN})
    set_source_files_properties(${source} PROPERTIES COMPILE_FLAGS "${flags}")
endfunction()
