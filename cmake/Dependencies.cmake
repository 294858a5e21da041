# SPDX-License-Identifier: Apache-2.0
#
# The libraries we use: PkgConfig::FUSE3, ::LIBNFS, ::JANSSON, ::LIBACL, ::LIBCAP,
# ::XXHASH, ::CMOCKA (tests only), and RocksDB::RocksDB.

find_package(PkgConfig REQUIRED)

# tools/setup builds libfuse here where the system's is too old.
list(PREPEND CMAKE_PREFIX_PATH "${PROJECT_SOURCE_DIR}/build/deps/fuse3")

function(ferry_need variable)
	pkg_check_modules(${variable} IMPORTED_TARGET ${ARGN})
	if(NOT ${variable}_FOUND)
		message(FATAL_ERROR "cannot find ${ARGN}: run tools/setup")
	endif()
endfunction()

ferry_need(FUSE3 fuse3>=3.17.2)
ferry_need(LIBNFS libnfs)
ferry_need(JANSSON jansson)
ferry_need(LIBACL libacl)
ferry_need(LIBCAP libcap)
ferry_need(XXHASH libxxhash)
if(FERRYFS_TESTS)
	ferry_need(CMOCKA cmocka)
endif()

find_package(RocksDB MODULE)
if(NOT RocksDB_FOUND)
	message(FATAL_ERROR "cannot find RocksDB: run tools/setup")
endif()
