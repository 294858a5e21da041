/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Works off the marks of one object: alone with it (OBJECT: its data, then size, owner,
 * mode, xattrs and, last, times, which everything before spoils), or one group of a
 * large file (DATA, several at once). model/size.pml proves the division.
 *
 * The source's attributes are read under the claim, before the data: a change that
 * comes later redirties the claim, so what is cleared was equal at that moment.
 */
#include <errno.h>
#include <unistd.h>

#include "migrate/migrate_internal.h"
#include "util/clock.h"

struct object_work {
	struct worker *worker;
	struct migrate *m;
	struct marks_task *task;
	struct object object;
	struct store_file *source_file, *target_file;
	struct store_attr source, target;
	struct synced synced; /* what it was made equal to before; mode 0: never */
	bool has_owner;	      /* synced says at least what it was created as */
	bool is_fresh;	      /* the target's object was created just now, empty */
};

static bool is_gone(int r)
{
	return r == -ENOENT || r == -ESTALE;
}

static void drop_claim(struct migrate *m, struct marks_task *task)
{
	marks_lock(m->config.marks);
	(void)marks_clear_locked(m->config.marks, task, MARKS_INFINITY); /* what is redirtied stays marked */
	(void)marks_unlock(m->config.marks); /* a clear need not be flushed */
}

static void keep_unpaired(struct migrate *m, struct marks_task *task)
{
	marks_lock(m->config.marks);
	marks_keep_locked(m->config.marks, task, MARKS_UNPAIRED, 0);
	(void)marks_unlock(m->config.marks); /* nothing was composed */
}

/* Whether it was never paired and has died: it is forgotten. Under its place lock, since
 * somebody may just be making the pair. */
static int forget_dead(struct object_work *w)
{
	struct migrate *m = w->m;
	struct place place;
	int r;

	if (m->is_stopping)
		return MIGRATE_E_STOPPING; /* its creation may be an intent left for the next start */
	r = journal_object_get(m->config.journal, w->task->object, &w->object);
	if (r < 0)
		return r;
	if (r == JOURNAL_E_NONE || !locator_is_null(&w->object.locator[m->to]))
		return MIGRATE_E_AGAIN;
	r = look_is_alive(m, &w->object);
	if (r != 0)
		return r < 0 ? r : 0;
	r = journal_place_get(m->config.journal, w->object.id, 0, NULL, &place);
	if (r != JOURNAL_E_NONE)
		return r < 0 ? r : 0;
	marks_lock(m->config.marks);
	(void)marks_clear_locked(m->config.marks, w->task, MARKS_INFINITY);
	marks_drop_object_locked(m->config.marks, w->object.id);
	journal_delete_object(m->config.journal, &w->object);
	r = journal_flush(m->config.journal, marks_unlock(m->config.marks));
	if (r < 0) {
		/* The journal is lost, and has said so; the task is ended all the same. */
	}
	return MIGRATE_E_ENDED;
}

/* Nothing to copy to yet. */
static int handle_unpaired(struct object_work *w)
{
	uint64_t id = w->object.id;
	int r;

	placelock_lock(&w->m->placelock, id, 0);
	r = forget_dead(w);
	placelock_unlock(&w->m->placelock, id, 0);
	if (r != 0)
		return r;
	keep_unpaired(w->m, w->task);
	return MIGRATE_E_ENDED;
}

/* Reads the records. An object's mark can be taken before the batch that paired it is
 * flushed: what looks unpaired or never synced is looked at again after a flush. */
static int read_records(struct object_work *w)
{
	struct migrate *m = w->m;
	bool is_flushed = false;
	int r;

	for (;;) {
		r = journal_object_get(m->config.journal, w->task->object, &w->object);
		if (r != 0)
			return r;
		r = journal_synced_get(m->config.journal, w->object.id, &w->synced);
		if (r < 0)
			return r;
		w->has_owner = r == 0;
		if (r == JOURNAL_E_NONE)
			w->synced.mode = 0;
		if (is_flushed || (!locator_is_null(&w->object.locator[m->to]) && w->synced.mode != 0))
			return 0;
		marks_lock(m->config.marks);
		r = journal_flush(m->config.journal, marks_unlock(m->config.marks));
		if (r < 0)
			return r;
		is_flushed = true;
	}
}

/* Opens and looks at the source. */
static int begin_source(struct object_work *w)
{
	struct migrate *m = w->m;
	int r;

	w->is_fresh = w->task->kind == MARKS_OBJECT && w->task->virgin_from == 0 && w->synced.mode == 0 &&
		      w->has_owner;
	if (S_ISREG(w->object.type)) {
		r = store_open(m->source, &w->object.locator[m->from],
			       STORE_OPEN_READ | STORE_OPEN_NOATIME | STORE_OPEN_REGULAR, &w->source_file);
		if (r == 0)
			r = store_file_getattr(w->source_file, &w->source);
	} else {
		r = store_getattr(m->source, &w->object.locator[m->from], &w->source);
	}
	/* Its names say what becomes of it. */
	if (is_gone(r) || (r == 0 && w->source.nlink == 0 && !orphans_has(m->config.orphans, w->object.id)))
		return MIGRATE_E_REST;
	return r;
}

/* Reads what is known. 0: go on. */
static int begin(struct object_work *w)
{
	struct migrate *m = w->m;
	int r;

	r = read_records(w);
	if (r < 0)
		return r;
	if (r == JOURNAL_E_NONE || locator_is_null(&w->object.locator[m->from])) {
		drop_claim(m, w->task);
		return MIGRATE_E_ENDED;
	}
	if (locator_is_null(&w->object.locator[m->to]))
		return handle_unpaired(w);
	return begin_source(w);
}

static void done(struct object_work *w)
{
	w->source_file = store_file_close(w->source_file);
	w->target_file = store_file_close(w->target_file);
}

static int open_target(struct object_work *w)
{
	if (w->target_file)
		return 0;
	return store_open(w->m->target, &w->object.locator[w->m->to],
			  STORE_OPEN_READ | STORE_OPEN_WRITE | STORE_OPEN_REGULAR, &w->target_file);
}

/* The bytes of data in [@offset, @end), counted no further than past @limit: holes cost nothing. */
static int data_bytes(struct store_file *file, uint64_t offset, uint64_t end, uint64_t limit, uint64_t *bytes)
{
	while (offset < end && *bytes <= limit) {
		int64_t data = store_seek(file, offset, SEEK_DATA), hole;

		if (data == -ENXIO || (data >= 0 && (uint64_t)data >= end))
			return 0;
		hole = data < 0 ? data : store_seek(file, (uint64_t)data, SEEK_HOLE);
		if (hole == -ENXIO)
			return 0; /* cut meanwhile */
		if (hole < 0)
			return (int)hole;
		if ((uint64_t)hole > end)
			hole = (int64_t)end;
		*bytes += (uint64_t)(hole - data);
		offset = (uint64_t)hole;
	}
	return 0;
}

static bool is_sparse(const struct object_work *w)
{
	return w->source.blocks * 512 < w->source.size;
}

/* What there is to copy; anything over the limit when it is more. */
static int claimed_bytes(const struct object_work *w, uint64_t limit, uint64_t *ret_bytes)
{
	uint64_t bytes = 0;
	int r = 0;

	for (unsigned i = 0; r == 0 && bytes <= limit && i < w->task->range_count; i++) {
		const struct marks_range *range = &w->task->ranges[i];
		uint64_t end = range->end < w->source.size ? range->end : w->source.size;

		if (range->offset >= end)
			continue;
		if (is_sparse(w) && range->offset >= w->task->virgin_from)
			r = data_bytes(w->source_file, range->offset, end, limit, &bytes);
		else
			bytes += end - range->offset;
	}
	*ret_bytes = bytes;
	return r;
}

/* Copies the claimed ranges; w->source.size is less afterwards if the file was cut meanwhile. */
static int copy_ranges(struct object_work *w, bool is_stable)
{
	struct migrate *m = w->m;
	struct copy copy = {
		.source = w->source_file,
		.size = w->source.size,
		.target_size = w->target.size,
		.is_sparse = is_sparse(w),
		.is_stable = is_stable,
		.can_punch = store_caps(m->target)->has_punch_hole,
		.buffer = w->worker->buffer,
	};
	uint64_t begun;
	int r;

	r = open_target(w);
	if (r != 0)
		return r;
	begun = clock_ns();
	migrate_set_copying(m, true);
	copy.target = w->target_file;
	for (unsigned i = 0; r == 0 && i < w->task->range_count; i++) {
		const struct marks_range *range = &w->task->ranges[i];

		copy.is_virgin = range->offset >= w->task->virgin_from;
		r = copy_range(&copy, range->offset, range->end);
	}
	w->source.size = copy.size;
	w->target.size = copy.target_size;
	m->copied_bytes += copy.copied_bytes;
	m->copy_ns += clock_ns() - begun;
	migrate_set_copying(m, false);
	return r;
}

static int set_target(struct object_work *w, const struct store_setattr *set)
{
	if (!set->valid)
		return 0;
	if (w->target_file)
		return store_file_setattr(w->target_file, set, &w->target);
	return store_setattr(w->m->target, &w->object.locator[w->m->to], set, &w->target);
}

/* Size and owner: before the xattrs, since a new owner takes capabilities away. */
static int set_size_and_owner(struct object_work *w)
{
	struct store_setattr set = { .uid = w->source.uid, .gid = w->source.gid, .size = w->source.size };

	if (S_ISREG(w->object.type) && w->target.size != w->source.size)
		set.valid |= STORE_SET_SIZE;
	if (w->target.uid != set.uid || w->target.gid != set.gid)
		set.valid |= STORE_SET_UID | STORE_SET_GID;
	return set_target(w, &set);
}

static int set_mode_and_times(struct object_work *w, const struct xattr_result *xattrs)
{
	struct store_setattr set = {
		.valid = STORE_SET_ATIME | STORE_SET_MTIME,
		.mode = w->source.mode & 07777,
		.atime = w->source.atime,
		.mtime = w->source.mtime,
	};

	if (xattrs->has_mask)
		set.mode = (set.mode & ~(mode_t)070) | (set.mode & xattrs->group_bits);
	if (!S_ISLNK(w->object.type))
		set.valid |= STORE_SET_MODE;
	return set_target(w, &set);
}

static int target_now(struct object_work *w)
{
	if (!w->is_fresh)
		return store_getattr(w->m->target, &w->object.locator[w->m->to], &w->target);
	/* As step.c created it. */
	w->target = (struct store_attr){ .uid = w->synced.uid, .gid = w->synced.gid, .size = 0 };
	return 0;
}

static void count_done(struct object_work *w, const struct xattr_result *xattrs)
{
	if (w->synced.mode == 0) {
		w->m->objects_done++;
		w->m->bytes_done += S_ISREG(w->object.type) ? w->source.size : 0;
		w->m->skipped_xattrs += xattrs->has_lost_xattr;
		w->m->skipped_acls += xattrs->has_lost_acl;
	}
	w->m->copied_objects++;
}

static bool is_whole(const struct marks_task *task)
{
	return task->range_count == 1 && task->ranges[0].offset == 0 && task->ranges[0].end == MARKS_INFINITY;
}

/*
 * After a gap, a change of an object that no scan has compared yet. Working off that
 * change alone would write down the ctime of now, and hide from the scan what happened in
 * the gap; and a directory that moves may never be seen by one. So it is marked whole
 * first, or scanned.
 */
static int compare_first(struct object_work *w)
{
	struct migrate *m = w->m;
	bool is_dir = S_ISDIR(w->object.type);
	int r;

	if (!m->has_gap || (!is_dir && !S_ISREG(w->object.type)))
		return 0;
	if (compared_has(&m->compared, w->object.id))
		return 0;
	if (!is_dir && is_whole(w->task)) {
		compared_add(&m->compared, w->object.id);
		return 0;
	}
	marks_lock(m->config.marks);
	if (is_dir)
		marks_put_scan_locked(m->config.marks, w->object.id, /* is_compare= */ true);
	else
		marks_put_whole_locked(m->config.marks, w->object.id, w->source.size, false);
	r = journal_flush(m->config.journal, marks_unlock(m->config.marks));
	if (r < 0)
		return r;
	compared_add(&m->compared, w->object.id);
	return is_dir ? 0 : MIGRATE_E_AGAIN;
}

static int make_equal(struct object_work *w)
{
	struct xattr_result xattrs = { .has_mask = false };
	uint64_t bytes = 0;
	int r;

	r = compare_first(w);
	if (r != 0)
		return r;
	if (S_ISREG(w->object.type)) {
		r = claimed_bytes(w, MIGRATE_OBJECT_BYTES_MAX, &bytes);
		if (r < 0)
			return r;
		if (bytes > MIGRATE_OBJECT_BYTES_MAX) {
			marks_lock(w->m->config.marks);
			marks_keep_locked(w->m->config.marks, w->task, MARKS_BULK, w->source.size);
			(void)marks_unlock(w->m->config.marks); /* nothing was composed */
			return MIGRATE_E_ENDED;
		}
	}
	r = target_now(w);
	if (r == 0 && bytes > 0)
		r = copy_ranges(w, /* is_stable= */ bytes <= MIGRATE_COPY_BYTES);
	if (r == 0)
		r = set_size_and_owner(w);
	if (r == 0)
		r = xattr_sync(w->worker, &w->object, w->source_file, w->is_fresh, &xattrs);
	if (r == 0)
		r = set_mode_and_times(w, &xattrs);
	if (r != 0)
		return r;

	count_done(w, &xattrs);
	w->synced = (struct synced){
		.mode = w->source.mode,
		.uid = w->source.uid,
		.gid = w->source.gid,
		.size = w->source.size,
		.mtime = w->source.mtime,
	};
	w->synced.ctime[w->m->from] = w->source.ctime;
	w->synced.ctime[w->m->to] = w->target.ctime;
	migrate_succeeded(w->m);
	commit_add(w->worker, w->task, w->source.size, &w->synced);
	return MIGRATE_E_ENDED;
}

/* One side says that the object is gone. Nothing is wrong if it has died meanwhile: whoever
 * works off its names, under its place lock, is taking it away or has done so. */
static int check_gone(struct object_work *w, int r)
{
	struct migrate *m = w->m;
	struct object object;
	int now;

	placelock_lock(&m->placelock, w->task->object, 0);
	now = journal_object_get(m->config.journal, w->task->object, &object);
	if (now == 0 && locator_equal(&object.locator[m->to], &w->object.locator[m->to]))
		now = look_is_alive(m, &object) == 0 ? MIGRATE_E_REST : r;
	else if (now >= 0)
		now = MIGRATE_E_AGAIN;
	placelock_unlock(&m->placelock, w->task->object, 0);
	return now;
}

static void end_object(struct object_work *w, int r, const char *what)
{
	done(w);
	if (is_gone(r))
		r = check_gone(w, r);
	if (r == MIGRATE_E_ENDED)
		return;
	if (r < 0)
		migrate_report(w->m, r, what, w->task->object, NULL);
	migrate_keep(w->m, w->task, r);
}

void object_work(struct worker *worker, struct marks_task *task)
{
	struct object_work w = { .worker = worker, .m = worker->migrate, .task = task };
	int r;

	assert(task->kind == MARKS_OBJECT);
	r = begin(&w);
	if (r == 0)
		r = make_equal(&w);
	end_object(&w, r, "make the object equal");
}

void object_work_new(struct worker *worker, struct marks_task *task, const struct object *object,
		     const struct store_attr *attr, struct store_file *file)
{
	struct object_work w = {
		.worker = worker,
		.m = worker->migrate,
		.task = task,
		.object = *object,
		.target_file = file,
		.synced = { .mode = 0, .uid = attr->uid, .gid = attr->gid },
		.has_owner = true,
	};
	int r;

	assert(task->kind == MARKS_OBJECT && task->object == object->id);
	r = begin_source(&w);
	if (r == 0)
		r = make_equal(&w);
	end_object(&w, r, "make the object equal");
}

void object_work_data(struct worker *worker, struct marks_task *task)
{
	struct object_work w = { .worker = worker, .m = worker->migrate, .task = task };
	int r;

	assert(task->kind == MARKS_DATA);
	r = begin(&w);
	if (r == 0)
		r = target_now(&w);
	if (r == 0)
		r = copy_ranges(&w, /* is_stable= */ false);
	if (r == 0) {
		migrate_succeeded(w.m);
		commit_add(worker, task, w.source.size, NULL);
		r = MIGRATE_E_ENDED;
	}
	end_object(&w, r, "copy the data");
}
