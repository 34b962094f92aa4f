# How a room, the library and a test are built. Included once by the top CMakeLists.txt.
include(GNUInstallDirs)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(LIBUV REQUIRED IMPORTED_TARGET libuv>=1.44.2)
pkg_check_modules(CK REQUIRED IMPORTED_TARGET ck)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash>=0.8)
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd>=1.4.0)
if(RUNNEL_HIREDIS)
    pkg_check_modules(HIREDIS IMPORTED_TARGET hiredis)
endif()
if(HIREDIS_FOUND AND RUNNEL_OPENSSL)
    pkg_check_modules(OPENSSL IMPORTED_TARGET openssl>=1.1.1)
    if(NOT OPENSSL_FOUND)
        message(STATUS "No OpenSSL 1.1.1 or later: the shared cache tier does without TLS (rediss://)")
    endif()
endif()
if(RUNNEL_JEMALLOC)
    pkg_check_modules(JEMALLOC IMPORTED_TARGET jemalloc)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON) # gnu11: uv.h needs it
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
if(RN_TOP)
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endif()
set(RN_ROOT ${CMAKE_CURRENT_SOURCE_DIR})

# Flags of every target of ours. No -ffast-math, no -march: SIMD files carry their own flags. No
# contraction: the same expression gives the same bits in every function it is inlined into.
add_library(rn_flags INTERFACE)
target_include_directories(rn_flags INTERFACE ${RN_ROOT} ${RN_ROOT}/include)
target_compile_options(rn_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -ffp-contract=off>)
if(RUNNEL_WERROR)
    target_compile_options(rn_flags INTERFACE -Werror)
endif()
# -g1: files and lines, which is what a report shows. Where variables are, too, costs the kernels three times as long to
# compile.
if(RUNNEL_SANITIZE)
    add_compile_options(-fsanitize=${RUNNEL_SANITIZE} -fno-omit-frame-pointer -g1)
    add_link_options(-fsanitize=${RUNNEL_SANITIZE})
    if(RUNNEL_SANITIZE MATCHES "undefined")
        add_compile_options(-fno-sanitize-recover=undefined)
    endif()
endif()

# rn_room(name SOURCE...): the objects of one room; they go into both libraries.
function(rn_room name)
    add_library(rn_${name} OBJECT ${ARGN})
    target_link_libraries(rn_${name} PRIVATE rn_flags)
    set_property(GLOBAL APPEND PROPERTY RN_ROOMS ${name})
endfunction()

# rn_simd(SOURCE FLAG...): flags of one SIMD file.
function(rn_simd source)
    string(JOIN " " flags ${ARGN})
    set_source_files_properties(${source} PROPERTIES COMPILE_FLAGS "${flags}")
endfunction()

# The two libraries. The static one may carry jemalloc; the shared one takes the host's allocator
# through the hook, because Debian's libjemalloc cannot be loaded by dlopen (static TLS).
function(rn_library)
    get_property(rooms GLOBAL PROPERTY RN_ROOMS)
    foreach(room ${rooms})
        list(APPEND objects $<TARGET_OBJECTS:rn_${room}>)
        if(NOT room STREQUAL "base")
            list(APPEND plain $<TARGET_OBJECTS:rn_${room}>)
        endif()
    endforeach()

    add_library(runnel_shared SHARED ${objects})
    set_target_properties(runnel_shared PROPERTIES OUTPUT_NAME runnel VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME runnel_shared LINKER_LANGUAGE C)
    target_link_options(runnel_shared PRIVATE -Wl,--version-script=${RN_ROOT}/cmake/runnel.map -Wl,--exclude-libs,ALL)
    set_target_properties(runnel_shared PROPERTIES LINK_DEPENDS ${RN_ROOT}/cmake/runnel.map)

    add_library(runnel_static STATIC ${plain} $<TARGET_OBJECTS:rn_base_static>)
    set_target_properties(runnel_static PROPERTIES OUTPUT_NAME runnel LINKER_LANGUAGE C)
    if(JEMALLOC_FOUND)
        target_link_libraries(runnel_static PRIVATE PkgConfig::JEMALLOC)
    endif()

    foreach(library runnel_shared runnel_static)
        target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${RN_ROOT}/include>
            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
        target_link_libraries(${library} PRIVATE PkgConfig::LIBUV PkgConfig::CK PkgConfig::JANSSON PkgConfig::UTF8PROC
            PkgConfig::XXHASH PkgConfig::LZ4 PkgConfig::ZSTD Threads::Threads m)
    endforeach()
    if(HIREDIS_FOUND)
        target_link_libraries(runnel_shared PRIVATE PkgConfig::HIREDIS)
        target_link_libraries(runnel_static PRIVATE PkgConfig::HIREDIS)
    endif()
    if(OPENSSL_FOUND)
        target_link_libraries(runnel_shared PRIVATE PkgConfig::OPENSSL)
        target_link_libraries(runnel_static PRIVATE PkgConfig::OPENSSL)
    endif()
    add_library(runnel::runnel ALIAS runnel_static)
    add_library(runnel::runnel_shared ALIAS runnel_shared)
    rn_install()
endfunction()

function(rn_install)
    include(CMakePackageConfigHelpers)
    set(RN_PC_PRIVATE_LIBS "-lm -lpthread")
    set(RN_PC_PRIVATE_REQUIRES "libuv ck jansson libutf8proc libxxhash liblz4 libzstd")
    if(JEMALLOC_FOUND)
        string(APPEND RN_PC_PRIVATE_REQUIRES " jemalloc")
    endif()
    if(HIREDIS_FOUND)
        string(APPEND RN_PC_PRIVATE_REQUIRES " hiredis")
    endif()
    if(OPENSSL_FOUND)
        string(APPEND RN_PC_PRIVATE_REQUIRES " openssl")
    endif()
    file(RELATIVE_PATH RN_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
    configure_file(${RN_ROOT}/cmake/runnel.pc.in ${CMAKE_CURRENT_BINARY_DIR}/runnel.pc @ONLY)
    configure_package_config_file(${RN_ROOT}/cmake/runnel-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/runnel-config.cmake
        INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/runnel)
    write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/runnel-config-version.cmake COMPATIBILITY SameMinorVersion)
    set_target_properties(runnel_static PROPERTIES EXPORT_NAME runnel)
    install(TARGETS runnel_shared runnel_static EXPORT runnel-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(FILES ${RN_ROOT}/include/runnel.h ${RN_ROOT}/include/runnel_files.h ${RN_ROOT}/include/runnel_uv.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/runnel.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
    install(EXPORT runnel-targets NAMESPACE runnel:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/runnel)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/runnel-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/runnel-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/runnel)
endfunction()

# rn_test(name SOURCE... [LABELS ...]): a cmocka program over the static library's inside. Its labels are those
# given and those of its room (RN_TEST_LABELS).
function(rn_test name)
    cmake_parse_arguments(T "" "" "LABELS;LIBS;ARGS" ${ARGN})
    list(APPEND T_LABELS ${RN_TEST_LABELS})
    add_executable(test_${name} ${T_UNPARSED_ARGUMENTS})
    target_link_libraries(test_${name} PRIVATE rn_flags runnel_static PkgConfig::CMOCKA PkgConfig::LIBUV Threads::Threads m ${T_LIBS})
    add_test(NAME ${name} COMMAND test_${name} ${T_ARGS} WORKING_DIRECTORY ${RN_ROOT})
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" SKIP_RETURN_CODE 77)
endfunction()
