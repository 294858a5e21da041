/* SPDX-License-Identifier: Apache-2.0 */
#include "journal/rocks.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/descriptors.h"
#include "util/log.h"

/*
 * The options in short: a small, evenly busy database that must never make a writer
 * wait for long.
 *
 *  - Memory: one block cache holds data, index and filter blocks; index and filters
 *    are partitioned, so that at a hundred million objects the parts in use compete
 *    for the cache and not the whole. All memtables share one budget.
 *  - Writers: what slows or stops them (files of level 0, unflushed memtables) is set
 *    so far out that compaction, on one thread, has minutes to catch up. Its priority is
 *    not lowered: on a busy machine it then falls so far behind that each read looks
 *    into thirty files, which costs the workload more than the thread does.
 *  - Restart: the log is kept at 8 MiB, which is read in about 0.2 s.
 *  - Memtables are skip lists. Hash tables spare a writer 2 us an object and cost the flush
 *    far more: at a million objects on a busy machine 14 us, 100 MiB, a stall of 13 s.
 *  - Concurrent memtable writes are off: there is one committer, and they cost.
 */
enum {
	CACHE_BYTES = 24 << 20,
	MEMTABLES_BYTES = 24 << 20,	 /* all families together */
	MEMTABLE_BYTES = 8 << 20,	 /* of one family */
	ARENA_BLOCK_BYTES = 128 << 10,	 /* what the smallest memtable takes */
	/* Of one family; then writers are slowed, and stop. All families are flushed at once
	 * when the log is full, so this also bounds the log, and with it memory and a restart,
	 * where the flushing thread gets no time. */
	MEMTABLES_MAX = 4,
	LOG_BYTES_MAX = 8 << 20,	 /* of the write-ahead log */
	LEVEL0_COMPACTION_FILES = 4,
	LEVEL0_SLOWDOWN_FILES = 64,
	LEVEL0_STOP_FILES = 128,
	LEVEL_BASE_BYTES = 64 << 20,
	TABLE_FILE_BYTES = 8 << 20,
	OPEN_FILES_MAX = 256,
	FILTER_BITS_PER_KEY = 10,	 /* 1% of the misses read a block */
	MANIFEST_BYTES_MAX = 4 << 20,
	MANIFEST_PREALLOCATED_BYTES = 64 << 10,
	INFO_LOG_BYTES_MAX = 256 << 10,
	INFO_LOGS_MAX = 3,
	/* Debian's RocksDB has its assertions on, and one of them fails when anything is
	 * logged after a write to the info log failed: a full disk must not kill us. So at
	 * run time nothing is logged there, errors reach our log anyway. */
	INFO_LOG_LEVEL_FATAL = 4,
	TABLE_FORMAT = 5,
	INDEX_TWO_LEVELS = rocksdb_block_based_table_index_type_two_level_index_search,
};

#define MEMTABLE_FILTER_RATIO 0.02 /* of a memtable */

static const struct {
	const char *name;
	bool has_filter; /* read by whole key, often in vain */
	/* Bytes of a key in which puts that follow each other agree; 0: they do not. A memtable
	 * then searches from where the last such put went. It remembers one place for each
	 * prefix: so of ids the last byte or two are left out. */
	unsigned hint_bytes;
} columns[] = {
	[COLUMN_META] = { "default", false, 0 }, /* RocksDB always has this one */
	[COLUMN_MARKS] = { "marks", false, 1 },	 /* the kind */
	[COLUMN_OBJECT] = { "object", true, 6 },
	[COLUMN_LOCATOR_A] = { "locator_a", true, 0 },
	[COLUMN_LOCATOR_B] = { "locator_b", true, 0 },
	[COLUMN_SHADOW] = { "shadow", true, 7 },
	[COLUMN_PLACE] = { "place", false, 6 },
	[COLUMN_SYNCED] = { "synced", true, 6 },
	[COLUMN_INTENT] = { "intent", false, 8 }, /* few keys, each many times */
};

static_assert(ARRAY_SIZE(columns) == COLUMN_MAX, "a name for each column family");

/* ---- errors -------------------------------------------------------------- */

int rocks_error(char *text, const char *what)
{
	static const struct {
		const char *says;
		int error;
	} known[] = {
		{ "No space left on device", ENOSPC },
		{ "Disk quota exceeded", ENOSPC },
		{ "Corruption", EBADMSG },
		{ "No such file or directory", EBADMSG }, /* a part of the database is gone */
		{ "lock hold by current process", EBUSY },
		{ "While lock file", EBUSY },
		{ "Permission denied", EACCES },
		{ "Read-only file system", EROFS },
		{ "Cannot allocate memory", ENOMEM },
	};
	int error = EIO;

	assert(text);
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (strstr(text, known[i].says)) {
			error = known[i].error;
			break;
		}
	}
	log_error("%s: %s", what, text);
	rocksdb_free(text);
	return -error;
}

int rocks_bad_record(enum column column, const void *key, size_t length)
{
	char hex[2 * 32 + 1] = "";

	for (size_t i = 0; i < length && i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", ((const uint8_t *)key)[i]);
	log_error("journal: the record '%s' of %zu bytes in '%s' is damaged", hex, length,
		  columns[column].name);
	return -EBADMSG;
}

/* ---- opening ------------------------------------------------------------- */

static rocksdb_block_based_table_options_t *table_options(rocksdb_cache_t *cache, bool has_filter)
{
	rocksdb_block_based_table_options_t *options = rocksdb_block_based_options_create();

	rocksdb_block_based_options_set_block_cache(options, cache);
	rocksdb_block_based_options_set_cache_index_and_filter_blocks(options, 1);
	rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(options, 1);
	rocksdb_block_based_options_set_index_type(options, INDEX_TWO_LEVELS);
	rocksdb_block_based_options_set_format_version(options, TABLE_FORMAT);
	if (has_filter) {
		rocksdb_block_based_options_set_filter_policy(
			options, rocksdb_filterpolicy_create_bloom_full(FILTER_BITS_PER_KEY));
		rocksdb_block_based_options_set_whole_key_filtering(options, 1);
		rocksdb_block_based_options_set_partition_filters(options, 1);
	}
	return options;
}

/* The C API has this option only as text. */
static rocksdb_options_t *add_hint(rocksdb_options_t *options, unsigned bytes)
{
	rocksdb_options_t *hinted = rocksdb_options_create();
	char *error = NULL, text[80];

	(void)snprintf(text, sizeof(text), "memtable_insert_with_hint_prefix_extractor=fixed:%u", bytes);
	rocksdb_get_options_from_string(options, text, hinted, &error);
	if (error) {
		/* Slower, and all the same otherwise. */
		(void)rocks_error(error, "cannot set an option of the journal");
		rocksdb_options_destroy(hinted);
		return options;
	}
	rocksdb_options_destroy(options);
	return hinted;
}

static rocksdb_options_t *column_options(rocksdb_cache_t *cache, bool has_filter, unsigned hint_bytes)
{
	rocksdb_block_based_table_options_t *table = table_options(cache, has_filter);
	rocksdb_options_t *options = rocksdb_options_create();

	rocksdb_options_set_block_based_table_factory(options, table);
	rocksdb_block_based_options_destroy(table);
	rocksdb_options_set_compression(options, rocksdb_lz4_compression);
	rocksdb_options_set_write_buffer_size(options, MEMTABLE_BYTES);
	rocksdb_options_set_arena_block_size(options, ARENA_BLOCK_BYTES);
	if (has_filter) {
		/* What is not there yet is what a baseline asks for most. */
		rocksdb_options_set_memtable_prefix_bloom_size_ratio(options, MEMTABLE_FILTER_RATIO);
		rocksdb_options_set_memtable_whole_key_filtering(options, 1);
	}
	rocksdb_options_set_max_write_buffer_number(options, MEMTABLES_MAX);
	rocksdb_options_set_level0_file_num_compaction_trigger(options, LEVEL0_COMPACTION_FILES);
	rocksdb_options_set_level0_slowdown_writes_trigger(options, LEVEL0_SLOWDOWN_FILES);
	rocksdb_options_set_level0_stop_writes_trigger(options, LEVEL0_STOP_FILES);
	rocksdb_options_set_max_bytes_for_level_base(options, LEVEL_BASE_BYTES);
	rocksdb_options_set_target_file_size_base(options, TABLE_FILE_BYTES);
	return hint_bytes ? add_hint(options, hint_bytes) : options;
}

static void set_database_options(rocksdb_options_t *options, rocksdb_env_t *env,
				 enum rocks_recovery recovery)
{
	rocksdb_options_set_env(options, env);
	rocksdb_options_set_create_if_missing(options, 1);
	rocksdb_options_set_create_missing_column_families(options, 1);
	rocksdb_options_set_paranoid_checks(options, 1);
	rocksdb_options_set_wal_recovery_mode(
		options, recovery == ROCKS_RECOVER_MACHINE ?
				 rocksdb_point_in_time_recovery :
				 rocksdb_tolerate_corrupted_tail_records_recovery);
	/* A recycled log ends in old records: its end could not be told from damage. */
	rocksdb_options_set_recycle_log_file_num(options, 0);
	rocksdb_options_set_max_total_wal_size(options, LOG_BYTES_MAX);
	rocksdb_options_set_db_write_buffer_size(options, MEMTABLES_BYTES);
	rocksdb_options_set_allow_concurrent_memtable_write(options, 0);
	rocksdb_options_set_enable_write_thread_adaptive_yield(options, 0);
	rocksdb_options_set_max_background_jobs(options, 2); /* one flushes, one compacts */
	rocksdb_options_set_max_open_files(options, (int)descriptors_share(DESCRIPTORS_JOURNAL, OPEN_FILES_MAX));
	rocksdb_options_set_max_file_opening_threads(options, 1);
	rocksdb_options_set_max_manifest_file_size(options, MANIFEST_BYTES_MAX);
	rocksdb_options_set_manifest_preallocation_size(options, MANIFEST_PREALLOCATED_BYTES);
	rocksdb_options_set_info_log_level(options, INFO_LOG_LEVEL_FATAL);
	rocksdb_options_set_max_log_file_size(options, INFO_LOG_BYTES_MAX);
	rocksdb_options_set_keep_log_file_num(options, INFO_LOGS_MAX);
	rocksdb_options_set_stats_dump_period_sec(options, 0);
	rocksdb_options_set_stats_persist_period_sec(options, 0);
}

static int column_by_name(const char *name)
{
	for (int column = 0; column < COLUMN_MAX; column++)
		if (strcmp(columns[column].name, name) == 0)
			return column;
	return -1;
}

/* The families to open: ours, then those that only the database knows. A later version
 * that made one without raising the format says by it that we may leave it alone; but
 * RocksDB opens all families or none. */
struct family_list {
	const char **names;
	size_t count;
	char **on_disk; /* owned, for RocksDB's own destructor */
	size_t on_disk_count;
};

static void family_list_done(struct family_list *list)
{
	free(list->names);
	if (list->on_disk)
		rocksdb_list_column_families_destroy(list->on_disk, list->on_disk_count);
}

static int family_list_make(struct family_list *list, const rocksdb_options_t *options,
			    const char *path, bool is_there)
{
	char *text = NULL;

	if (is_there) {
		list->on_disk = rocksdb_list_column_families(options, path, &list->on_disk_count, &text);
		if (text)
			return rocks_error(text, "cannot read the journal");
	}
	list->names = calloc(COLUMN_MAX + list->on_disk_count, sizeof(*list->names));
	if (!list->names)
		return -ENOMEM;

	for (int column = 0; column < COLUMN_MAX; column++)
		list->names[list->count++] = columns[column].name;
	for (size_t i = 0; i < list->on_disk_count; i++)
		if (column_by_name(list->on_disk[i]) < 0)
			list->names[list->count++] = list->on_disk[i];
	return 0;
}

static int open_families(struct rocks *rocks, const char *path, const struct family_list *list,
			 const rocksdb_options_t *options, rocksdb_cache_t *cache)
{
	_cleanup_free_ rocksdb_column_family_handle_t **handles = NULL;
	_cleanup_free_ rocksdb_options_t **each = NULL;
	char *text = NULL;

	handles = calloc(list->count, sizeof(*handles));
	each = calloc(list->count, sizeof(*each));
	rocks->strange = calloc(list->count, sizeof(*rocks->strange));
	if (!handles || !each || !rocks->strange)
		return -ENOMEM;

	for (size_t i = 0; i < list->count; i++)
		each[i] = column_options(cache, i < COLUMN_MAX && columns[i].has_filter,
					 i < COLUMN_MAX ? columns[i].hint_bytes : 0);
	rocks->db = rocksdb_open_column_families(options, path, (int)list->count, list->names,
						 (const rocksdb_options_t *const *)each, handles, &text);
	for (size_t i = 0; i < list->count; i++)
		rocksdb_options_destroy(each[i]);
	if (text)
		return rocks_error(text, "cannot open the journal");

	for (size_t i = 0; i < list->count; i++) {
		if (i < COLUMN_MAX)
			rocks->column[i] = handles[i];
		else
			rocks->strange[rocks->strange_count++] = handles[i];
	}
	return 0;
}

static bool database_is_there(const char *path)
{
	char current[4096];
	int n = snprintf(current, sizeof(current), "%s/CURRENT", path);

	return n > 0 && (size_t)n < sizeof(current) && access(current, F_OK) == 0;
}

int rocks_open(struct rocks *rocks, const char *path, enum rocks_recovery recovery)
{
	struct family_list list = { 0 };
	rocksdb_options_t *options;
	rocksdb_cache_t *cache;
	rocksdb_env_t *env;
	int r;

	*rocks = ROCKS_NULL;
	env = rocksdb_create_default_env();
	cache = rocksdb_cache_create_lru(CACHE_BYTES);
	options = rocksdb_options_create();
	set_database_options(options, env, recovery);

	r = family_list_make(&list, options, path, database_is_there(path));
	if (r == 0)
		r = open_families(rocks, path, &list, options, cache);
	family_list_done(&list);
	rocksdb_options_destroy(options);
	rocksdb_cache_destroy(cache); /* the families hold it */
	rocksdb_env_destroy(env);     /* the default one goes on for ever */
	if (r < 0) {
		rocks_close(rocks);
		return r;
	}
	rocks->read = rocksdb_readoptions_create();
	rocks->write = rocksdb_writeoptions_create();
	return 0;
}

void rocks_close(struct rocks *rocks)
{
	for (int column = 0; column < COLUMN_MAX; column++)
		if (rocks->column[column])
			rocksdb_column_family_handle_destroy(rocks->column[column]);
	for (size_t i = 0; i < rocks->strange_count; i++)
		rocksdb_column_family_handle_destroy(rocks->strange[i]);
	free(rocks->strange);
	if (rocks->read)
		rocksdb_readoptions_destroy(rocks->read);
	if (rocks->write)
		rocksdb_writeoptions_destroy(rocks->write);
	if (rocks->db)
		rocksdb_close(rocks->db);
	*rocks = ROCKS_NULL;
}

/* ---- reading ------------------------------------------------------------- */

int rocks_get(const struct rocks *rocks, enum column column, const void *key, size_t length,
	      struct rocks_value *ret_value)
{
	rocksdb_pinnableslice_t *slice;
	char *text = NULL;

	assert(column < COLUMN_MAX);
	slice = rocksdb_get_pinned_cf(rocks->db, rocks->read, rocks->column[column], key, length,
				      &text);
	if (text)
		return rocks_error(text, "cannot read from the journal");
	if (!slice)
		return JOURNAL_E_NONE;

	ret_value->slice = slice;
	ret_value->bytes = rocksdb_pinnableslice_value(slice, &ret_value->length);
	return 0;
}

void rocks_value_done(struct rocks_value *value)
{
	if (value->slice)
		rocksdb_pinnableslice_destroy(value->slice);
	value->slice = NULL;
}
