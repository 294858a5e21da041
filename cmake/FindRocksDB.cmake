# SPDX-License-Identifier: Apache-2.0
#
# Finds RocksDB with its C API, as RocksDB::RocksDB.

find_path(RocksDB_INCLUDE_DIR rocksdb/c.h)
find_library(RocksDB_LIBRARY rocksdb)
mark_as_advanced(RocksDB_INCLUDE_DIR RocksDB_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RocksDB
	REQUIRED_VARS RocksDB_LIBRARY RocksDB_INCLUDE_DIR)

if(RocksDB_FOUND AND NOT TARGET RocksDB::RocksDB)
	add_library(RocksDB::RocksDB UNKNOWN IMPORTED)
	set_target_properties(RocksDB::RocksDB PROPERTIES
		IMPORTED_LOCATION "${RocksDB_LIBRARY}"
		INTERFACE_INCLUDE_DIRECTORIES "${RocksDB_INCLUDE_DIR}"
	)
endif()
