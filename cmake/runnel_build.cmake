# How a room, the library and a test are built. Included once by the top CMakeLists.txt.
include(GNUInstallDirs)

# rn_left_out(TEXT): what the build goes on without, since it is not on this machine. With tests and CI=true, where a
# run that proves less would look the same, that is an error; scripts/setup installs what it takes.
function(rn_left_out text)
    if(RUNNEL_BUILD_TESTS AND "$ENV{CI}" STREQUAL "true")
        message(SEND_ERROR "${text}. CI=true: scripts/setup has to install it")
    else()
        message(STATUS "${text}")
    endif()
endfunction()

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(LIBUV REQUIRED IMPORTED_TARGET libuv>=1.44.2)
pkg_check_modules(CK REQUIRED IMPORTED_TARGET ck)
if(RUNNEL_BUILD_APPS OR RUNNEL_BUILD_TESTS)
    pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson) # of the program; the judge of tests
endif()
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash>=0.8)
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd>=1.4.0)
# What was found stays in the cache of a build folder: where it is not wanted any more, a variable hides that.
set(HIREDIS_FOUND FALSE)
set(OPENSSL_FOUND FALSE)
set(JEMALLOC_FOUND FALSE)
if(RUNNEL_HIREDIS)
    unset(HIREDIS_FOUND)
    pkg_check_modules(HIREDIS IMPORTED_TARGET hiredis)
    if(NOT HIREDIS_FOUND)
        rn_left_out("No hiredis: there is no shared cache tier")
    endif()
endif()
if(HIREDIS_FOUND AND RUNNEL_OPENSSL)
    unset(OPENSSL_FOUND)
    pkg_check_modules(OPENSSL IMPORTED_TARGET openssl>=1.1.1)
    if(NOT OPENSSL_FOUND)
        rn_left_out("No OpenSSL 1.1.1 or later: the shared cache tier does without TLS (rediss://)")
    endif()
endif()
if(RUNNEL_JEMALLOC)
    unset(JEMALLOC_FOUND)
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

include(runnel_rooms)
# -g1: files and lines, which is what a report shows. Where variables are, too, costs the kernels three times as long to
# compile.
if(RUNNEL_SANITIZE)
    add_compile_options(-fsanitize=${RUNNEL_SANITIZE} -fno-omit-frame-pointer -g1)
    add_link_options(-fsanitize=${RUNNEL_SANITIZE})
    if(RUNNEL_SANITIZE MATCHES "undefined")
        add_compile_options(-fno-sanitize-recover=undefined)
    endif()
endif()

# The libraries. Hosts get the shared one (runnel::runnel) or the archive (runnel::runnel_static): both take the host's
# allocator through the hook, for Debian's libjemalloc cannot be loaded by dlopen (static TLS) and takes malloc's place
# where it is linked. The program, tests and benchmarks link runnel_static, which is not installed and may carry jemalloc.
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
        SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME runnel LINKER_LANGUAGE C)
    target_link_options(runnel_shared PRIVATE -Wl,--version-script=${RN_ROOT}/cmake/runnel.map -Wl,--exclude-libs,ALL)
    set_target_properties(runnel_shared PROPERTIES LINK_DEPENDS ${RN_ROOT}/cmake/runnel.map)

    add_library(runnel_archive STATIC ${objects})
    set_target_properties(runnel_archive PROPERTIES OUTPUT_NAME runnel EXPORT_NAME runnel_static LINKER_LANGUAGE C)

    add_library(runnel_static STATIC ${plain} $<TARGET_OBJECTS:rn_base_static>)
    set_target_properties(runnel_static PROPERTIES OUTPUT_NAME runnel_own LINKER_LANGUAGE C)
    if(JEMALLOC_FOUND)
        target_link_libraries(runnel_static PRIVATE PkgConfig::JEMALLOC)
    endif()

    # What they need of others. To who installs, the archive names it as bare libraries: no package has to be found for a
    # host that takes the shared library, and nobody's compiler flags come into a host.
    set(RN_NEEDS "")
    foreach(needed LIBUV CK UTF8PROC XXHASH LZ4 ZSTD HIREDIS OPENSSL)
        if(NOT ${needed}_FOUND)
            continue()
        endif()
        foreach(library runnel_shared runnel_archive runnel_static)
            target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:PkgConfig::${needed}>)
        endforeach()
        list(APPEND RN_NEEDS ${${needed}_LDFLAGS})
    endforeach()
    list(APPEND RN_NEEDS -lpthread -lm)
    list(REMOVE_DUPLICATES RN_NEEDS)
    target_link_libraries(runnel_archive INTERFACE "$<INSTALL_INTERFACE:${RN_NEEDS}>")
    foreach(library runnel_shared runnel_archive runnel_static)
        target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${RN_ROOT}/include>
            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
        target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:Threads::Threads> $<BUILD_INTERFACE:m>)
    endforeach()
    add_library(runnel::runnel ALIAS runnel_shared)
    add_library(runnel::runnel_static ALIAS runnel_archive)
    rn_install()
endfunction()

# Components: runtime (the shared library), development (headers, the archive, pkg-config, CMake, docs, examples), program
# (apps/). Each brings the licence.
function(rn_install)
    include(CMakePackageConfigHelpers)
    string(JOIN " " RN_PC_PRIVATE_LIBS ${RN_NEEDS})
    file(RELATIVE_PATH RN_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
    foreach(package runnel runnel-static)
        configure_file(${RN_ROOT}/cmake/${package}.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${package}.pc @ONLY)
        install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
            COMPONENT development)
    endforeach()
    configure_package_config_file(${RN_ROOT}/cmake/runnel-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/runnel-config.cmake
        INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/runnel)
    write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/runnel-config-version.cmake COMPATIBILITY SameMinorVersion)
    install(TARGETS runnel_shared runnel_archive EXPORT runnel-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
    set(public runnel.h runnel_status.h runnel_sampling.h runnel_grammar.h runnel_chat.h runnel_hooks.h runnel_observe.h
        runnel_files.h runnel_infill.h runnel_scores.h runnel_fields.h runnel_uv.h)
    list(TRANSFORM public PREPEND ${RN_ROOT}/include/)
    set(script ${RN_ROOT}/cmake/librunnel_manual.awk)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${public} ${script})
    execute_process(COMMAND awk -v version=${PROJECT_VERSION} -f ${script} ${public} COMMAND_ERROR_IS_FATAL ANY
        OUTPUT_FILE ${CMAKE_CURRENT_BINARY_DIR}/librunnel.3)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/librunnel.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT development)
    install(FILES ${public} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
    install(EXPORT runnel-targets NAMESPACE runnel:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/runnel
        COMPONENT development)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/runnel-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/runnel-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/runnel COMPONENT development)

    set(documents ${CMAKE_INSTALL_DATAROOTDIR}/doc/runnel)
    foreach(component runtime development program)
        install(FILES ${RN_ROOT}/LICENSE DESTINATION ${documents} COMPONENT ${component})
    endforeach()
    install(FILES ${RN_ROOT}/README.md ${RN_ROOT}/SPEED.md DESTINATION ${documents} COMPONENT development)
    install(DIRECTORY ${RN_ROOT}/docs DESTINATION ${documents} COMPONENT development FILES_MATCHING PATTERN "*.md")
    install(FILES ${RN_ROOT}/docs/BATCH.md ${RN_ROOT}/docs/EAGLE.md DESTINATION ${documents}/docs COMPONENT program)
    install(DIRECTORY ${RN_ROOT}/examples DESTINATION ${documents} COMPONENT development
        FILES_MATCHING PATTERN "*.c" PATTERN "*.md" PATTERN "*.txt" PATTERN "*.gguf"
        PATTERN "CMakeLists.txt" EXCLUDE)
endfunction()

# rn_test(name SOURCE... [LABELS ...]): a cmocka program over the static library's inside. Its labels are those
# given and those of its room (RN_TEST_LABELS).
function(rn_test name)
    cmake_parse_arguments(T "" "" "LABELS;LIBS;ARGS" ${ARGN})
    list(APPEND T_LABELS ${RN_TEST_LABELS})
    add_executable(test_${name} ${T_UNPARSED_ARGUMENTS})
    target_link_libraries(test_${name} PRIVATE rn_flags rn_test_support runnel_static PkgConfig::CMOCKA PkgConfig::LIBUV
        Threads::Threads m ${T_LIBS})
    add_test(NAME ${name} COMMAND test_${name} ${T_ARGS} WORKING_DIRECTORY ${RN_ROOT})
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" SKIP_RETURN_CODE 77)
    rn_labelled(test_${name} ${T_LABELS})
endfunction()

# rn_without_sanitizers(test...): tests that no sanitizer's stage runs. Nor does it build their programs.
function(rn_without_sanitizers)
    if(NOT RUNNEL_SANITIZE)
        return()
    endif()
    set_tests_properties(${ARGN} PROPERTIES DISABLED ON)
    foreach(test ${ARGN})
        if(TARGET test_${test})
            set_target_properties(test_${test} PROPERTIES EXCLUDE_FROM_ALL ON)
        endif()
    endforeach()
endfunction()

# rn_labelled(TARGET LABEL...): the target tests_LABEL builds TARGET, so that who runs the tests of one label need not
# build the others.
function(rn_labelled target)
    foreach(label ${ARGN})
        if(NOT TARGET tests_${label})
            add_custom_target(tests_${label})
        endif()
        add_dependencies(tests_${label} ${target})
    endforeach()
endfunction()
