# SPDX-License-Identifier: Apache-2.0
#
# project_flags: every compiler and linker flag of ours. Each target of the
# project links it; nothing is set for whole directories.

include(CheckCCompilerFlag)
include(CheckPIESupported)

# Our assertions stay on in every build: util/attr.h refuses NDEBUG.
foreach(config IN ITEMS RELEASE RELWITHDEBINFO MINSIZEREL)
	string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_${config} "${CMAKE_C_FLAGS_${config}}")
endforeach()
if(NOT CMAKE_BUILD_TYPE)
	set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

check_pie_supported(LANGUAGES C)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_library(project_flags INTERFACE)
target_link_libraries(project_flags INTERFACE Threads::Threads)
target_include_directories(project_flags INTERFACE
	"${PROJECT_SOURCE_DIR}"
	"${PROJECT_BINARY_DIR}"
)
target_compile_definitions(project_flags INTERFACE
	_GNU_SOURCE
	_FILE_OFFSET_BITS=64
)
target_compile_options(project_flags INTERFACE
	-std=gnu11
	-fno-strict-aliasing
	-Wall
	-Wextra
	-Wshadow
	-Wundef
	-Wformat=2
	-Wstrict-prototypes
	-Wmissing-prototypes
	-Wpointer-arith
	-Wwrite-strings
	-Wvla
	$<$<C_COMPILER_ID:Clang>:-Wthread-safety>
)

if(FERRYFS_BENCH_MARKS_OFF)
	target_compile_definitions(project_flags INTERFACE FERRYFS_BENCH_MARKS_OFF)
endif()

if(FERRYFS_WERROR)
	target_compile_options(project_flags INTERFACE -Werror)
endif()

if(FERRYFS_HARDENING)
	target_compile_definitions(project_flags INTERFACE _FORTIFY_SOURCE=2)
	foreach(flag IN ITEMS
		-fstack-protector-strong
		-fstack-clash-protection
		-fcf-protection
		-ftrivial-auto-var-init=zero
	)
		string(MAKE_C_IDENTIFIER "FERRYFS_HAS${flag}" has_flag)
		check_c_compiler_flag(${flag} ${has_flag})
		if(${has_flag})
			target_compile_options(project_flags INTERFACE ${flag})
		endif()
	endforeach()
	target_link_options(project_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
endif()

if(FERRYFS_SANITIZE)
	set(sanitize -fsanitize=${FERRYFS_SANITIZE} -fno-omit-frame-pointer)
	if(NOT FERRYFS_SANITIZE STREQUAL "thread")
		list(APPEND sanitize -fno-sanitize-recover=all)
	endif()
	target_compile_options(project_flags INTERFACE ${sanitize})
	target_link_options(project_flags INTERFACE ${sanitize})
endif()

if(FERRYFS_COVERAGE)
	target_compile_options(project_flags INTERFACE --coverage -fprofile-update=atomic)
	target_link_options(project_flags INTERFACE --coverage)
endif()
