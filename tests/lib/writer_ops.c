/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modes mix and churn: random operations of every kind on the writer's own directory
 * and on its own names in a shared one, each checked against the model at once where
 * it can be read back.
 *
 * Up to HELD_MAX files are kept open over many operations, some of them without
 * a name by then, and one is mapped: so a failover finds them in use.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/lib/writer.h"
#include "tests/lib/writer_record.h"

enum {
	HELD_MAX = 12,
	DIRS_MAX = 14,
	NAMES = 36,	/* names tried in a directory */
	ADOPT_MAX = 60, /* files of the data set taken over */
	ADOPT_BYTES_MAX = 128 * 1024,
	WRITE_BYTES_MAX = 48 * 1024,
	BLOCK = 4096,
	OTHER_ID = 1000, /* the identity that some files are created with */
	EVERY_ERRNO = 0,
};

struct held {
	int fd;
	struct model_node *node;
};

static struct {
	const struct writer_options *options;
	struct model model;
	struct record *record;
	struct rng rng;
	char own[16];
	struct held held[HELD_MAX];
	struct {
		struct model_node *node;
		uint8_t *address;
		size_t size;
	} map;
	bool can_be_other;
	uint64_t done, refused[OP_MAX];
} run;

static uint64_t below(uint64_t bound)
{
	return rng_below(&run.rng, bound);
}

static bool once_in(uint64_t n)
{
	return below(n) == 0;
}

/* ---- picking ----------------------------------------------------------------- */

static struct model_node *pick_dir(void)
{
	struct model_node *dirs[DIRS_MAX + 2], *node;
	unsigned count = 0;
	uint32_t i;

	for (i = 0; i < run.model.node_count && count < ARRAY_SIZE(dirs); i++) {
		node = run.model.nodes[i];
		if (S_ISDIR(node->mode) && (i == MODEL_OWN || node->nlink > 0 ||
					    (i == MODEL_SHARED && run.options->shared)))
			dirs[count++] = node;
	}
	return dirs[below(count)];
}

static unsigned count_dirs(void)
{
	unsigned count = 0;
	uint32_t i;

	for (i = 0; i < run.model.node_count; i++)
		count += S_ISDIR(run.model.nodes[i]->mode) && run.model.nodes[i]->nlink > 0;
	return count;
}

/* A name of this writer in @dir: free or taken. */
static void pick_name(const struct model_node *dir, char name[static NAME_MAX + 1])
{
	unsigned n = (unsigned)below(NAMES);

	if (dir->is_partial && once_in(2) && dir->entry_count > 0) {
		strcpy(name, dir->entries[below(dir->entry_count)].name);
		return;
	}
	if (dir->is_partial)
		snprintf(name, NAME_MAX + 1, "w%u-n%u", run.options->id, n);
	else if (n % 12 == 0)
		snprintf(name, NAME_MAX + 1, "new\nline %u", n);
	else if (n % 12 == 1)
		snprintf(name, NAME_MAX + 1, "\377\376%u", n);
	else if (n % 12 == 2)
		snprintf(name, NAME_MAX + 1, "%0255u", n);
	else
		snprintf(name, NAME_MAX + 1, "n%u", n);
}

static bool pick_free(const struct model_node *dir, char name[static NAME_MAX + 1])
{
	int tries;

	for (tries = 0; tries < 8; tries++) {
		pick_name(dir, name);
		if (!model_find(dir, name))
			return true;
	}
	return false;
}

/* An entry of a type in @types (S_IFMT bits; 0: any). NULL: found none. */
static struct model_entry *pick_entry(mode_t type, struct model_node **ret_dir)
{
	struct model_entry *entry;
	struct model_node *dir;
	int tries;

	for (tries = 0; tries < 16; tries++) {
		dir = pick_dir();
		if (dir->entry_count == 0)
			continue;
		entry = &dir->entries[below(dir->entry_count)];
		if (type && (entry->node->mode & S_IFMT) != type)
			continue;
		if (ret_dir)
			*ret_dir = dir;
		return entry;
	}
	return NULL;
}

static bool path_of(const struct model_node *dir, const char *name, char path[static PATH_MAX])
{
	char below_dir[PATH_MAX];

	return model_path(&run.model, dir, name, run.own, run.options->shared, below_dir,
			  sizeof(below_dir)) &&
	       snprintf(path, PATH_MAX, "%s/%s", run.options->dir, below_dir) < PATH_MAX;
}

static void must_path(const struct model_node *dir, const char *name, char path[static PATH_MAX])
{
	if (!path_of(dir, name, path))
		die(TEST_TROUBLE, "a path grew too long");
}

/* ---- the course of an operation ---------------------------------------------- */

static void __attribute__((noreturn)) PRINTF_LIKE(2, 3) fail(int error, const char *format, ...)
{
	char text[4096];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	run.record = record_close(run.record);
	writer_fail_errno(run.options, error, "after %llu operations: %s",
			  (unsigned long long)run.done, text);
}

static bool is_held(const struct model_node *node)
{
	unsigned i;

	for (i = 0; i < HELD_MAX; i++)
		if (run.held[i].fd >= 0 && run.held[i].node == node)
			return true;
	return run.map.node == node;
}

/* Operations that a file system may refuse without being wrong. */
static bool may_refuse(enum op_kind kind, int error)
{
	switch (kind) {
	case OP_COLLAPSE:
	case OP_INSERT:
	case OP_EXCHANGE:
	case OP_COPY:
	case OP_TMPFILE:
		return error == EOPNOTSUPP || error == EINVAL || error == ENOSYS || error == EXDEV;
	case OP_ZERO:
	case OP_EXTEND:
	case OP_SETXATTR:
		return error == EOPNOTSUPP;
	case OP_REMOVEXATTR:
		return error == EOPNOTSUPP || error == ENODATA;
	default:
		return false;
	}
}

static void begin(const struct op *op)
{
	record_begin(run.record, op);
}

/* What the objects of an operation are, for its failure. */
static const char *describe(const struct op *op)
{
	const struct model_node *dir = run.model.nodes[op->dir], *dir2 = run.model.nodes[op->dir2];
	const struct model_node *node, *over;
	static char text[200];

	node = *op->name ? model_find(dir, op->name) : run.model.nodes[op->node];
	over = *op->name2 ? model_find(dir2, op->name2) : NULL;
	text[0] = '\0';
	if (node)
		snprintf(text, sizeof(text), " (object %u, mode %o, %u links%s)", node->id,
			 node->mode, node->nlink, is_held(node) ? ", held" : "");
	if (over)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 " (over object %u, mode %o, %u links%s)", over->id, over->mode,
			 over->nlink, is_held(over) ? ", held" : "");
	return text;
}

/* @result: what the call returned; errno as it left it. True: it was done. */
static bool end(const struct op *op, int64_t result, const char *path)
{
	int error = errno;

	run.done++;
	if (result >= 0) {
		record_end(run.record, result);
		model_apply(&run.model, op, result, /* bytes= */ NULL);
		return true;
	}
	if (may_refuse(op->kind, error)) {
		record_end(run.record, -error);
		run.refused[op->kind]++;
		return false;
	}
	fail(error, "%s of '%s'%s%s%s", op_names[op->kind], escaped(path), *op->name2 ? " to " : "",
	     escaped(op->name2), describe(op));
}

/* A call that has to fail in a certain way: nothing is recorded. */
static void expect(int result, int wanted, const char *what, const char *path)
{
	if (result == 0)
		fail(EVERY_ERRNO, "%s of '%s' should have failed: %s", what, escaped(path),
		     strerror(wanted));
	if (errno != wanted)
		fail(errno, "%s of '%s' should have failed otherwise: %s", what, escaped(path),
		     strerror(wanted));
}

/* ---- files to work on --------------------------------------------------------- */

static struct held *held_free(void)
{
	unsigned i;

	for (i = 0; i < HELD_MAX; i++)
		if (run.held[i].fd < 0)
			return &run.held[i];
	return NULL;
}

static struct held *held_any(void)
{
	struct held *held = &run.held[below(HELD_MAX)];

	return held->fd >= 0 ? held : NULL;
}

static void held_close(struct held *held)
{
	if (close(held->fd) < 0)
		fail(errno, "close of object %u", held->node->id);
	held->fd = -1;
}

struct target { /* a file that an operation works on */
	struct model_node *node;
	int fd;
	bool is_held;
	char path[PATH_MAX]; /* for messages, if it is held */
};

/* Opens a random file with @flags, or takes a held one. */
static bool target_open(struct target *t, int flags)
{
	struct model_entry *entry;
	struct model_node *dir;
	struct held *held = once_in(3) ? held_any() : NULL;

	t->is_held = held && !(flags & (O_APPEND | O_DIRECT | O_TRUNC));
	if (t->is_held) {
		t->node = held->node;
		t->fd = held->fd;
		snprintf(t->path, sizeof(t->path), "held object %u with %u links", t->node->id,
			 t->node->nlink);
		return true;
	}
	entry = pick_entry(S_IFREG, &dir);
	if (!entry)
		return false;
	t->node = entry->node;
	must_path(dir, entry->name, t->path);
	t->fd = open(t->path, flags | O_NOFOLLOW | O_CLOEXEC);
	if (t->fd < 0 && (flags & O_DIRECT) && errno == EINVAL)
		return false;
	if (t->fd < 0)
		fail(errno, "open of '%s'", escaped(t->path));
	return true;
}

static void target_close(struct target *t)
{
	struct held *held = once_in(12) ? held_free() : NULL;

	if (t->is_held)
		return;
	if (held && (fcntl(t->fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_DIRECT)) == O_RDWR) {
		*held = (struct held){ t->fd, t->node };
		return;
	}
	if (close(t->fd) < 0)
		fail(errno, "close of '%s'", escaped(t->path));
}

/* ---- bytes --------------------------------------------------------------------- */

static uint8_t *new_bytes(const struct op *op)
{
	uint8_t *bytes = aligned_alloc(BLOCK, (op->length + BLOCK) / BLOCK * BLOCK);

	if (!bytes)
		die(TEST_TROUBLE, "out of memory");
	fill_bytes(bytes, op->length, op->seed, 0);
	return bytes;
}

static void do_write(void)
{
	struct op op = { .kind = OP_WRITE, .seed = rng_next(&run.rng) };
	uint8_t *bytes;
	struct target t;

	if (!target_open(&t, O_RDWR))
		return;
	op.node = t.node->id;
	op.length = 1 + below(once_in(4) ? WRITE_BYTES_MAX : BLOCK);
	op.offset = below(t.node->size + (once_in(8) ? 100000 : 1));
	if (op.offset + op.length > MODEL_FILE_BYTES_MAX)
		op.offset = below(BLOCK);
	bytes = new_bytes(&op);
	begin(&op);
	end(&op, pwrite(t.fd, bytes, op.length, (off_t)op.offset), t.path);
	free(bytes);
	if (once_in(16) && fsync(t.fd) < 0)
		fail(errno, "fsync of '%s'", escaped(t.path));
	target_close(&t);
}

static void do_direct_write(void)
{
	struct op op = { .kind = OP_WRITE, .seed = rng_next(&run.rng) };
	uint8_t *bytes;
	struct target t;
	ssize_t n;

	if (!target_open(&t, O_RDWR | O_DIRECT))
		return;
	op.node = t.node->id;
	op.length = BLOCK * (1 + below(8));
	op.offset = BLOCK * below(t.node->size / BLOCK + 1);
	if (op.offset + op.length <= MODEL_FILE_BYTES_MAX && !t.node->is_pinned) {
		bytes = new_bytes(&op);
		begin(&op);
		n = pwrite(t.fd, bytes, op.length, (off_t)op.offset);
		if (n < 0 && errno == EINVAL)
			record_end(run.record, -EINVAL);
		else
			end(&op, n, t.path);
		free(bytes);
	}
	target_close(&t);
}

static void do_append(void)
{
	struct op op = { .kind = OP_WRITE, .seed = rng_next(&run.rng), .length = 1 + below(3000) };
	uint8_t *bytes;
	struct target t;

	if (!target_open(&t, O_WRONLY | O_APPEND))
		return;
	op.node = t.node->id;
	op.offset = t.node->size;
	if (op.offset + op.length <= MODEL_FILE_BYTES_MAX) {
		bytes = new_bytes(&op);
		begin(&op);
		end(&op, write(t.fd, bytes, op.length), t.path);
		free(bytes);
	}
	target_close(&t);
}

static void do_truncate(void)
{
	struct op op = { .kind = OP_TRUNCATE };
	struct target t;

	if (!target_open(&t, O_RDWR))
		return;
	op.node = t.node->id;
	op.length = once_in(3)	 ? 0
		    : once_in(2) ? below(t.node->size + 1)
				 : t.node->size + below(200000);
	if (op.length <= MODEL_FILE_BYTES_MAX && !(t.node->is_pinned && op.length < t.node->size)) {
		begin(&op);
		end(&op, ftruncate(t.fd, (off_t)op.length), t.path);
	}
	target_close(&t);
}

/* echo something > file */
static void do_overwrite(void)
{
	struct op op = { .kind = OP_TRUNCATE };
	struct model_entry *entry;
	struct model_node *dir;
	char path[PATH_MAX];
	uint8_t *bytes;
	int fd;

	entry = pick_entry(S_IFREG, &dir);
	if (!entry || entry->node->is_pinned)
		return;
	must_path(dir, entry->name, path);
	op.node = entry->node->id;
	begin(&op);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW);
	end(&op, fd < 0 ? -1 : 0, path);
	op.kind = OP_WRITE;
	op.length = 1 + below(8000);
	op.seed = rng_next(&run.rng);
	bytes = new_bytes(&op);
	begin(&op);
	end(&op, write(fd, bytes, op.length), path);
	free(bytes);
	if (close(fd) < 0)
		fail(errno, "close of '%s'", escaped(path));
}

static void do_fallocate(void)
{
	static const enum op_kind kinds[] = { OP_ZERO, OP_ZERO, OP_EXTEND, OP_COLLAPSE, OP_INSERT };
	struct op op = { .kind = kinds[below(ARRAY_SIZE(kinds))] };
	int mode = 0;
	struct target t;

	if (!target_open(&t, O_RDWR))
		return;
	op.node = t.node->id;
	op.offset = once_in(2) ? below(t.node->size + 1) : BLOCK * below(t.node->size / BLOCK + 1);
	op.length = once_in(2) ? 1 + below(50000) : BLOCK * (1 + below(4));
	if (op.kind == OP_ZERO)
		mode = once_in(2) ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
				  : FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
	if (op.kind == OP_EXTEND) {
		op.offset = 0;
		op.length = 1 + below(t.node->size + 50000);
	}
	if (op.kind == OP_COLLAPSE || op.kind == OP_INSERT) {
		mode = op.kind == OP_COLLAPSE ? FALLOC_FL_COLLAPSE_RANGE : FALLOC_FL_INSERT_RANGE;
		op.offset = op.offset / BLOCK * BLOCK;
		op.length = BLOCK * (1 + below(4));
	}
	if (op.offset + op.length <= MODEL_FILE_BYTES_MAX && !t.node->is_pinned &&
	    (op.kind != OP_INSERT ||
	     (op.offset < t.node->size && t.node->size + op.length <= MODEL_FILE_BYTES_MAX)) &&
	    (op.kind != OP_COLLAPSE || op.offset + op.length < t.node->size)) {
		begin(&op);
		end(&op, fallocate(t.fd, mode, (off_t)op.offset, (off_t)op.length), t.path);
	}
	target_close(&t);
}

static void do_copy(void)
{
	struct op op = { .kind = OP_COPY };
	struct target from, to;
	loff_t in, out;

	if (!target_open(&from, O_RDONLY))
		return;
	if (target_open(&to, O_RDWR)) {
		op.node = to.node->id;
		op.node2 = from.node->id;
		op.offset2 = below(from.node->size + 1);
		op.offset = below(to.node->size + 1);
		op.length = 1 + below(20000);
		if (op.offset2 + op.length > from.node->size)
			op.length = from.node->size - op.offset2;
		if (op.length > 0 && op.offset + op.length <= MODEL_FILE_BYTES_MAX &&
		    to.node != from.node) {
			in = (loff_t)op.offset2;
			out = (loff_t)op.offset;
			begin(&op);
			end(&op, copy_file_range(from.fd, &in, to.fd, &out, op.length, 0), to.path);
		}
		target_close(&to);
	}
	target_close(&from);
}

/* ---- the mapped file ------------------------------------------------------------ */

static void map_end(void)
{
	if (munmap(run.map.address, run.map.size) < 0)
		fail(errno, "munmap");
	run.map.node->is_pinned = false;
	run.map.node = NULL;
}

/* The mapping lives on without a descriptor. */
static void map_begin(void)
{
	struct target t;
	void *address;

	if (!target_open(&t, O_RDWR))
		return;
	if (t.node->size >= 4 * BLOCK) {
		run.map.size = t.node->size / BLOCK * BLOCK;
		address = mmap(NULL, run.map.size, PROT_READ | PROT_WRITE, MAP_SHARED, t.fd, 0);
		if (address == MAP_FAILED)
			fail(errno, "mmap of '%s'", escaped(t.path));
		run.map.address = address;
		run.map.node = t.node;
		t.node->is_pinned = true;
	}
	target_close(&t);
}

static void do_map(void)
{
	struct op op = { .kind = OP_WRITE, .seed = rng_next(&run.rng) };
	uint64_t page;

	if (!run.map.node) {
		map_begin();
		return;
	}
	if (memcmp(run.map.address, run.map.node->bytes, run.map.size) != 0)
		fail(EVERY_ERRNO, "the map of object %u differs from what was written",
		     run.map.node->id);
	if (once_in(40)) {
		map_end();
		return;
	}
	op.node = run.map.node->id;
	op.offset = below(run.map.size - 1);
	op.length = 1 + below(run.map.size - op.offset);
	if (op.length > 3 * BLOCK)
		op.length = 3 * BLOCK;
	begin(&op);
	fill_bytes(run.map.address + op.offset, op.length, op.seed, 0);
	page = op.offset / BLOCK * BLOCK;
	if (msync(run.map.address + page, op.offset + op.length - page, MS_SYNC) < 0)
		end(&op, -1, "the map");
	else
		end(&op, (int64_t)op.length, "the map");
}

/* ---- names ---------------------------------------------------------------------- */

static bool others_may_enter(const struct model_node *dir)
{
	for (; dir; dir = dir->parent)
		if (dir->is_partial || (dir->mode & 0777) != 0777)
			return false;
	return true;
}

static void set_fs_identity(uid_t id)
{
	/* The group first: afterwards the capability for it is gone. */
	if (id != 0) {
		setfsgid(id);
		setfsuid(id);
	} else {
		setfsuid(0);
		setfsgid(0);
	}
}

/* Who creates in @dir, and what comes of it. */
static bool choose_identity(const struct model_node *dir, struct op *op)
{
	bool is_other = run.can_be_other && once_in(4) && others_may_enter(dir);

	op->uid = op->gid = is_other ? OTHER_ID : 0;
	if (dir->mode & S_ISGID) {
		op->gid = dir->gid;
		if (S_ISDIR(op->mode))
			op->mode |= S_ISGID;
	}
	return is_other;
}

static int create(const struct op *op, const char *path, mode_t mode, bool is_other)
{
	char target[MODEL_LINK_BYTES_MAX + 1];
	int r, error;

	if (is_other)
		set_fs_identity(OTHER_ID);
	if (S_ISREG(mode))
		r = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode & 07777);
	else if (S_ISDIR(mode))
		r = mkdir(path, mode & 07777);
	else if (S_ISLNK(mode))
		model_link_target(op->seed, op->length, target), r = symlink(target, path);
	else
		r = mknod(path, mode, 0);
	error = errno;
	if (is_other)
		set_fs_identity(0);
	errno = error;
	return r;
}

static mode_t pick_mode(mode_t type)
{
	static const mode_t file[] = { 0644, 0666, 0600, 0444, 0755, 0000, 0640 };
	static const mode_t dir[] = { 0777, 0777, 0777, 0755, 0700 };

	if (type == S_IFDIR)
		return dir[below(ARRAY_SIZE(dir))];
	return type == S_IFLNK ? 0777 : file[below(ARRAY_SIZE(file))];
}

static void do_create_in(struct model_node *dir, const char *name, mode_t type)
{
	static const mode_t umasks[] = { 0, 0, 022, 077 };
	struct op op = { .kind = OP_CREATE, .dir = dir->id };
	mode_t mask = umasks[below(ARRAY_SIZE(umasks))], mode = pick_mode(type) | type;
	char path[PATH_MAX];
	struct held *held;
	bool is_other;
	int r;

	if (!path_of(dir, name, path) || strlen(path) > PATH_MAX / 2)
		return;
	strcpy(op.name, name);
	op.mode = type == S_IFLNK ? mode : mode & ~mask;
	if (type == S_IFLNK) {
		op.seed = rng_next(&run.rng);
		op.length = 1 + below(once_in(4) ? MODEL_LINK_BYTES_MAX : 30);
	}
	is_other = choose_identity(dir, &op);
	umask(mask);
	begin(&op);
	r = create(&op, path, mode, is_other);
	end(&op, r, path);
	umask(0);
	if (type != S_IFREG)
		return;
	/* Written through the descriptor that made it, whatever its mode. */
	op = (struct op){ .kind = OP_WRITE,
			  .node = run.model.node_count - 1,
			  .seed = rng_next(&run.rng),
			  .length = 1 + below(10000) };
	if (!once_in(4)) {
		uint8_t *bytes = new_bytes(&op);

		begin(&op);
		end(&op, write(r, bytes, op.length), path);
		free(bytes);
	}
	held = once_in(10) ? held_free() : NULL;
	if (held)
		*held = (struct held){ r, run.model.nodes[op.node] };
	else if (close(r) < 0)
		fail(errno, "close of '%s'", escaped(path));
}

static void do_create(void)
{
	struct model_node *dir = pick_dir();
	char name[NAME_MAX + 1], path[PATH_MAX];
	struct model_node *there;
	mode_t type = once_in(6) ? S_IFLNK : once_in(30) ? S_IFIFO : S_IFREG;

	pick_name(dir, name);
	there = model_find(dir, name);
	if (!there) {
		do_create_in(dir, name, type);
	} else if (once_in(4)) {
		must_path(dir, name, path);
		expect(mkdir(path, 0777), EEXIST, "mkdir", path);
	}
}

static void do_mkdir(void)
{
	struct model_node *dir = pick_dir();
	char name[NAME_MAX + 1];

	if (count_dirs() < DIRS_MAX && !dir->is_partial && pick_free(dir, name))
		do_create_in(dir, name, S_IFDIR);
}

static void do_tmpfile(void)
{
	struct model_node *dir = pick_dir();
	struct op op = { .kind = OP_TMPFILE, .mode = S_IFREG | 0640 };
	struct held *held = held_free();
	char path[PATH_MAX];
	int fd;

	if (!held)
		return;
	must_path(dir, /* name= */ NULL, path);
	choose_identity(dir, &op);
	op.uid = 0;
	if (!(dir->mode & S_ISGID))
		op.gid = 0;
	if (dir->is_partial)
		return; /* its group is not known */
	begin(&op);
	fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0640);
	if (end(&op, fd < 0 ? -1 : 0, path))
		*held = (struct held){ fd, run.model.nodes[run.model.node_count - 1] };
}

/* Gives a name to a file that was made without one. */
static void do_link_held(void)
{
	struct model_node *dir = pick_dir();
	struct op op = { .kind = OP_LINK, .dir = dir->id };
	struct held *held = held_any();
	char path[PATH_MAX], proc[64];
	struct stat st;
	int r;

	if (!held || held->node->nlink > 0 || !pick_free(dir, op.name))
		return;
	op.node = held->node->id;
	must_path(dir, op.name, path);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", held->fd);
	begin(&op);
	r = linkat(AT_FDCWD, proc, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
	if (!held->node->is_linkable) { /* it had a name, and lost it for good */
		expect(r, ENOENT, "link to", path);
		record_end(run.record, -ENOENT);
		if (fstat(held->fd, &st) < 0 || st.st_nlink != 0)
			fail(errno, "fstat of a file without names");
		return;
	}
	end(&op, r, path);
}

static void do_link(void)
{
	struct model_node *from_dir, *dir = pick_dir();
	struct model_entry *entry = pick_entry(once_in(6) ? S_IFLNK : S_IFREG, &from_dir);
	struct op op = { .kind = OP_LINK, .dir = dir->id };
	char from[PATH_MAX], path[PATH_MAX];

	if (!entry || !pick_free(dir, op.name))
		return;
	op.node = entry->node->id;
	must_path(from_dir, entry->name, from);
	must_path(dir, op.name, path);
	begin(&op);
	end(&op, linkat(AT_FDCWD, from, AT_FDCWD, path, 0), path);
}

static void do_unlink(void)
{
	struct model_node *dir;
	struct model_entry *entry = pick_entry(0, &dir);
	struct op op = { .kind = OP_UNLINK };
	struct held *held = once_in(3) ? held_free() : NULL;
	char path[PATH_MAX];

	if (!entry)
		return;
	must_path(dir, entry->name, path);
	if (S_ISDIR(entry->node->mode)) {
		if (once_in(4))
			expect(unlink(path), EISDIR, "unlink", path);
		return;
	}
	if (held && S_ISREG(entry->node->mode)) {
		*held = (struct held){ open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW), entry->node };
		if (held->fd < 0)
			fail(errno, "open of '%s'", escaped(path));
	}
	op.dir = dir->id;
	strcpy(op.name, entry->name);
	begin(&op);
	end(&op, unlink(path), path);
}

static void do_rmdir(void)
{
	struct model_node *dir;
	struct model_entry *entry = pick_entry(S_IFDIR, &dir);
	struct op op = { .kind = OP_UNLINK };
	char path[PATH_MAX];

	if (!entry)
		return;
	must_path(dir, entry->name, path);
	if (entry->node->entry_count > 0) {
		expect(rmdir(path), ENOTEMPTY, "rmdir", path);
		return;
	}
	op.dir = dir->id;
	strcpy(op.name, entry->name);
	begin(&op);
	end(&op, rmdir(path), path);
}

/* The errno that rename(2) has to give, 0 if it has to work. */
static int rename_errno(const struct model_node *node, const struct model_node *to,
			const struct model_node *over)
{
	if (S_ISDIR(node->mode) && model_is_below(to, node))
		return EINVAL;
	if (!over || over == node)
		return 0;
	if (S_ISDIR(node->mode) && !S_ISDIR(over->mode))
		return ENOTDIR;
	if (!S_ISDIR(node->mode) && S_ISDIR(over->mode))
		return EISDIR;
	return S_ISDIR(over->mode) && over->entry_count > 0 ? ENOTEMPTY : 0;
}

static void do_rename_entry(struct model_node *dir, struct model_entry *entry,
			    struct model_node *to, const char *name)
{
	struct op op = { .kind = OP_RENAME, .dir = dir->id, .dir2 = to->id };
	char from_path[PATH_MAX], path[PATH_MAX];
	int error;

	if (S_ISDIR(entry->node->mode) && to->is_partial)
		return;
	strcpy(op.name, entry->name);
	strcpy(op.name2, name);
	must_path(dir, op.name, from_path);
	if (!path_of(to, name, path) || strlen(path) > PATH_MAX / 2)
		return;
	error = rename_errno(entry->node, to, model_find(to, name));
	/* rename() of a directory onto a parent of its own place is ENOTEMPTY anyway. */
	if (error) {
		if (rename(from_path, path) == 0 ||
		    (errno != error && errno != ENOTEMPTY && errno != EEXIST))
			fail(errno, "rename of '%s' to '%s' should have failed: %s",
			     escaped(from_path), escaped(path), strerror(error));
		return;
	}
	begin(&op);
	end(&op, rename(from_path, path), from_path);
}

static void do_rename(void)
{
	struct model_node *dir, *to = pick_dir();
	struct model_entry *entry = pick_entry(once_in(3) ? S_IFDIR : 0, &dir);
	char name[NAME_MAX + 1];

	if (!entry)
		return;
	pick_name(to, name);
	do_rename_entry(dir, entry, to, name);
}

static void do_rename_flags(void)
{
	struct model_node *dir = NULL, *dir2 = NULL;
	struct model_entry *a = pick_entry(0, &dir), *b = pick_entry(0, &dir2);
	struct op op = { .kind = OP_EXCHANGE };
	char path[PATH_MAX], path2[PATH_MAX];

	if (!a || !b || a->node == b->node)
		return;
	must_path(dir, a->name, path);
	must_path(dir2, b->name, path2);
	if (once_in(2)) {
		expect(renameat2(AT_FDCWD, path, AT_FDCWD, path2, RENAME_NOREPLACE), EEXIST,
		       "rename without replacing", path);
		return;
	}
	if (model_is_below(dir, b->node) || model_is_below(dir2, a->node) ||
	    (S_ISDIR(a->node->mode) && dir2->is_partial) ||
	    (S_ISDIR(b->node->mode) && dir->is_partial))
		return;
	op.dir = dir->id;
	op.dir2 = dir2->id;
	strcpy(op.name, a->name);
	strcpy(op.name2, b->name);
	begin(&op);
	end(&op, renameat2(AT_FDCWD, path, AT_FDCWD, path2, RENAME_EXCHANGE), path);
}

/* Save as editors do: a new file, fsync, rename over the old one. */
static void do_save(void)
{
	struct model_node *dir = pick_dir(), *other;
	struct model_entry *entry = pick_entry(S_IFREG, &other);
	char name[NAME_MAX + 1], old[NAME_MAX + 1];
	size_t i;

	if (!entry || !pick_free(dir, name))
		return;
	strcpy(old, entry->name);
	do_create_in(dir, name, S_IFREG);
	for (i = 0; i < dir->entry_count; i++)
		if (strcmp(dir->entries[i].name, name) == 0) {
			do_rename_entry(dir, &dir->entries[i], other, old);
			return;
		}
}

/* A symlink that is swapped at once for another. */
static void do_swap_symlink(void)
{
	struct model_node *dir, *to = pick_dir();
	struct model_entry *entry = pick_entry(S_IFLNK, &dir);
	char name[NAME_MAX + 1], old[NAME_MAX + 1];
	size_t i;

	if (!pick_free(to, name))
		return;
	if (entry)
		strcpy(old, entry->name);
	do_create_in(to, name, S_IFLNK);
	for (i = 0; entry && i < to->entry_count; i++)
		if (strcmp(to->entries[i].name, name) == 0) {
			do_rename_entry(to, &to->entries[i], dir, old);
			return;
		}
}

/* The same name, another type. */
static void do_change_type(void)
{
	static const mode_t types[] = { S_IFREG, S_IFLNK, S_IFDIR, S_IFIFO };
	struct model_node *dir;
	struct model_entry *entry = pick_entry(0, &dir);
	struct op op = { .kind = OP_UNLINK };
	char path[PATH_MAX];
	mode_t type = types[below(ARRAY_SIZE(types))];
	bool is_dir;

	if (!entry || dir->is_partial)
		return;
	is_dir = S_ISDIR(entry->node->mode);
	if ((is_dir && entry->node->entry_count > 0) ||
	    (type == S_IFDIR && !is_dir && count_dirs() >= DIRS_MAX))
		return;
	must_path(dir, entry->name, path);
	op.dir = dir->id;
	strcpy(op.name, entry->name);
	begin(&op);
	end(&op, is_dir ? rmdir(path) : unlink(path), path);
	do_create_in(dir, op.name, type);
}

/* ---- attributes ------------------------------------------------------------------- */

static void check_mode(const struct model_node *node, const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		fail(errno, "lstat of '%s'", escaped(path));
	if (st.st_mode != node->mode || st.st_uid != node->uid || st.st_gid != node->gid)
		fail(EVERY_ERRNO, "'%s' has mode %o and owner %u:%u, not %o and %u:%u",
		     escaped(path), st.st_mode, st.st_uid, st.st_gid, node->mode, node->uid,
		     node->gid);
}

static void do_attributes(void)
{
	static const mode_t modes[] = { 0644, 0600, 0444, 0000, 04755, 02755, 06711, 01666, 02644 };
	static const mode_t dir_modes[] = { 0777, 0777, 02777, 01777, 0755 };
	struct model_node *dir, *node;
	struct model_entry *entry = pick_entry(0, &dir);
	struct op op = { 0 };
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { 0 } };
	char path[PATH_MAX];
	int r;

	if (!entry || S_ISLNK(entry->node->mode))
		return;
	node = entry->node;
	op.node = node->id;
	must_path(dir, entry->name, path);
	switch (below(3)) {
	case 0:
		op.kind = OP_CHMOD;
		op.mode = S_ISDIR(node->mode) ? dir_modes[below(ARRAY_SIZE(dir_modes))]
					      : modes[below(ARRAY_SIZE(modes))];
		begin(&op);
		r = chmod(path, op.mode);
		break;
	case 1:
		op.kind = OP_CHOWN;
		op.uid = once_in(2) ? 0 : 1000 + (uint32_t)below(3);
		op.gid = once_in(2) ? 0 : 1000 + (uint32_t)below(3);
		begin(&op);
		r = lchown(path, op.uid, op.gid);
		break;
	default:
		op.kind = OP_UTIMES;
		op.mtime_s = once_in(20) ? 0 : (int64_t)below(2000000000);
		op.mtime_ns = (int64_t)below(1000000000);
		times[1] = (struct timespec){ op.mtime_s, op.mtime_ns };
		begin(&op);
		r = utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
	}
	end(&op, r, path);
	check_mode(node, path);
}

static void do_xattr(void)
{
	struct model_node *dir;
	struct model_entry *entry = pick_entry(once_in(4) ? S_IFDIR : S_IFREG, &dir);
	struct op op = { .mode = (uint32_t)below(MODEL_XATTRS), .seed = rng_next(&run.rng) };
	uint8_t value[MODEL_XATTR_BYTES_MAX];
	char path[PATH_MAX];

	if (!entry)
		return;
	op.node = entry->node->id;
	must_path(dir, entry->name, path);
	if (entry->node->xattr && entry->node->xattr[op.mode].is_set && once_in(3)) {
		op.kind = OP_REMOVEXATTR;
		begin(&op);
		end(&op, lremovexattr(path, model_xattr_names[op.mode]), path);
		return;
	}
	op.kind = OP_SETXATTR;
	op.length = below(MODEL_XATTR_BYTES_MAX);
	fill_bytes(value, op.length, op.seed, 0);
	begin(&op);
	end(&op, lsetxattr(path, model_xattr_names[op.mode], value, op.length, 0), path);
}

/* ---- reading back ------------------------------------------------------------------- */

static void check_bytes(struct target *t)
{
	struct model_node *node = t->node;
	uint8_t *found = xcalloc(1, node->size + 1);
	struct stat st;
	size_t done = 0, i;
	ssize_t n;

	if (fstat(t->fd, &st) < 0)
		fail(errno, "fstat of '%s'", escaped(t->path));
	if ((size_t)st.st_size != node->size || st.st_nlink != node->nlink ||
	    st.st_mode != node->mode)
		fail(EVERY_ERRNO, "'%s' has size %lld, %u links, mode %o, not %zu, %u, %o",
		     escaped(t->path), (long long)st.st_size, (unsigned)st.st_nlink, st.st_mode,
		     node->size, node->nlink, node->mode);
	while ((n = pread(t->fd, found + done, node->size + 1 - done, (off_t)done)) > 0)
		done += (size_t)n;
	if (n < 0)
		fail(errno, "read of '%s'", escaped(t->path));
	for (i = 0; i < done && i < node->size && found[i] == node->bytes[i]; i++)
		;
	if (done != node->size || i < done)
		fail(EVERY_ERRNO,
		     "'%s' (object %u) reads wrong: %zu bytes of %zu, first wrong at %zu",
		     escaped(t->path), node->id, done, node->size, i);
	free(found);
}

static void do_read(void)
{
	struct target t;

	if (!target_open(&t, once_in(2) ? O_RDONLY : O_RDWR))
		return;
	check_bytes(&t);
	target_close(&t);
}

static void do_list(void)
{
	struct model_node *node = pick_dir();
	char path[PATH_MAX];
	struct dirent *entry;
	size_t count = 0;
	DIR *dir;

	if (node->is_partial)
		return;
	must_path(node, /* name= */ NULL, path);
	dir = opendir(path);
	if (!dir)
		fail(errno, "opendir of '%s'", escaped(path));
	for (errno = 0; (entry = readdir(dir)); errno = 0) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		count++;
		if (!model_find(node, entry->d_name))
			fail(EVERY_ERRNO, "'%s' lists '%s', which is not there", escaped(path),
			     escaped(entry->d_name));
	}
	if (errno)
		fail(errno, "readdir of '%s'", escaped(path));
	closedir(dir);
	if (count != node->entry_count)
		fail(EVERY_ERRNO, "'%s' lists %zu names, not %zu", escaped(path), count,
		     node->entry_count);
	if (once_in(3)) {
		must_path(node, "no such name", path);
		expect(open(path, O_RDONLY) < 0 ? -1 : 0, ENOENT, "open", path);
	}
}

static void do_close_held(void)
{
	struct held *held = held_any();
	struct target t = { .is_held = true };

	if (!held)
		return;
	t.node = held->node;
	t.fd = held->fd;
	snprintf(t.path, sizeof(t.path), "held object %u", t.node->id);
	check_bytes(&t);
	held_close(held);
}

/* ---- the run --------------------------------------------------------------------------- */

static const struct {
	void (*make)(void);
	unsigned mix, churn; /* how often */
} steps[] = {
	{ do_write, 16, 2 },	   { do_direct_write, 3, 0 }, { do_append, 8, 2 },
	{ do_truncate, 5, 1 },	   { do_overwrite, 6, 3 },    { do_fallocate, 5, 0 },
	{ do_copy, 3, 0 },	   { do_map, 6, 0 },	      { do_create, 12, 30 },
	{ do_mkdir, 5, 10 },	   { do_tmpfile, 2, 1 },      { do_link_held, 6, 2 },
	{ do_link, 5, 8 },	   { do_unlink, 8, 16 },      { do_rmdir, 4, 8 },
	{ do_rename, 12, 25 },	   { do_rename_flags, 4, 4 }, { do_save, 6, 12 },
	{ do_swap_symlink, 3, 6 }, { do_change_type, 3, 6 },  { do_attributes, 10, 6 },
	{ do_xattr, 5, 1 },	   { do_read, 16, 4 },	      { do_list, 4, 2 },
	{ do_close_held, 4, 1 },
};

static void make_step(bool is_churn)
{
	unsigned total = 0, i;
	uint64_t at;

	for (i = 0; i < ARRAY_SIZE(steps); i++)
		total += is_churn ? steps[i].churn : steps[i].mix;
	at = below(total);
	for (i = 0; at >= (is_churn ? steps[i].churn : steps[i].mix); i++)
		at -= is_churn ? steps[i].churn : steps[i].mix;
	steps[i].make();
}

/* Takes over a plain file of the data set, under the name it has there. */
static void adopt(const char *name)
{
	struct op op = { .kind = OP_ADOPT, .dir = MODEL_SHARED };
	char path[PATH_MAX];
	struct stat st;
	uint8_t *bytes;
	ssize_t n;
	int fd;

	must_path(run.model.nodes[MODEL_SHARED], name, path);
	if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 ||
	    st.st_size > ADOPT_BYTES_MAX || llistxattr(path, NULL, 0) > 0)
		return;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		fail(errno, "open of '%s'", escaped(path));
	bytes = xcalloc(1, (size_t)st.st_size + 1);
	n = pread(fd, bytes, (size_t)st.st_size, 0);
	if (n != st.st_size)
		fail(errno, "read of '%s'", escaped(path));
	close(fd);
	strcpy(op.name, name);
	op.mode = st.st_mode;
	op.uid = st.st_uid;
	op.gid = st.st_gid;
	op.length = (uint64_t)n;
	record_fact(run.record, &op, bytes);
	model_apply(&run.model, &op, 0, bytes);
	free(bytes);
}

/* Each writer has its own part of the names, by their hash. */
static void adopt_some(void)
{
	struct model_node *shared = run.model.nodes[MODEL_SHARED];
	char path[PATH_MAX];
	struct dirent *entry;
	uint64_t hash;
	DIR *dir;

	must_path(shared, /* name= */ NULL, path);
	dir = opendir(path);
	if (!dir)
		fail(errno, "opendir of '%s'", escaped(path));
	while (shared->entry_count < ADOPT_MAX && (entry = readdir(dir))) {
		hash = hash_bytes(entry->d_name, strlen(entry->d_name));
		if (hash % run.options->writers == run.options->id % run.options->writers &&
		    entry->d_name[0] != 'w' && entry->d_name[0] != '.')
			adopt(entry->d_name);
	}
	closedir(dir);
}

/* What is created in @path gets no ACL from it: the model has none. */
static void drop_default_acl(const char *path)
{
	if (removexattr(path, "system.posix_acl_default") < 0 && errno != ENODATA &&
	    errno != EOPNOTSUPP)
		fail(errno, "removing the default ACL of '%s'", escaped(path));
}

/* What is created in the shared directory gets its group, and no ACL from it. */
static void prepare_shared(void)
{
	struct model_node *shared = run.model.nodes[MODEL_SHARED];
	char path[PATH_MAX];
	struct stat st;

	must_path(shared, /* name= */ NULL, path);
	drop_default_acl(path);
	if (stat(path, &st) < 0)
		fail(errno, "stat of '%s'", escaped(path));
	shared->mode = st.st_mode;
	shared->gid = st.st_gid;
}

static void find_out_about_others(void)
{
	struct op op = { .mode = S_IFREG };
	char path[PATH_MAX];
	int fd;

	must_path(run.model.nodes[MODEL_OWN], "as other", path);
	fd = create(&op, path, S_IFREG | 0600, /* is_other= */ true);
	run.can_be_other = fd >= 0;
	if (fd < 0)
		return;
	close(fd);
	if (unlink(path) < 0)
		fail(errno, "unlink of '%s'", escaped(path));
}

static void start(const struct writer_options *options)
{
	char path[PATH_MAX];
	unsigned i;

	run.options = options;
	run.rng.state = options->seed * 1000003 + options->id;
	snprintf(run.own, sizeof(run.own), "w%u", options->id);
	for (i = 0; i < HELD_MAX; i++)
		run.held[i].fd = -1;
	model_init(&run.model);
	umask(0);
	must_path(run.model.nodes[MODEL_OWN], /* name= */ NULL, path);
	if (access(options->record, F_OK) == 0) { /* goes on where one before it ended */
		if (ops_resume(options, &run.model, /* is_check= */ false) > 0)
			exit(WRITER_FAILED);
		run.record = record_open(options->record);
		run.rng.state += run.model.node_count * 7919;
	} else {
		run.record = record_open(options->record);
		if (mkdir(path, 0777) < 0)
			fail(errno, "mkdir of '%s'", escaped(path));
		drop_default_acl(path);
		if (chmod(path, 0777) < 0)
			fail(errno, "chmod of '%s'", escaped(path));
		if (options->shared)
			adopt_some();
	}
	if (options->shared)
		prepare_shared();
	find_out_about_others();
}

/* Notes the times as they are at the end: nobody will change them any more. */
static void note_times(void)
{
	struct op op = { .kind = OP_MTIME };
	struct model_node *dir;
	char path[PATH_MAX];
	struct stat st;
	uint32_t i;
	size_t k;

	for (i = 0; i < run.model.node_count; i++) {
		dir = run.model.nodes[i];
		if (S_ISDIR(dir->mode) && i > MODEL_SHARED && dir->nlink == 0)
			continue;
		for (k = 0; k < dir->entry_count; k++) {
			must_path(dir, dir->entries[k].name, path);
			if (lstat(path, &st) < 0)
				fail(errno, "lstat of '%s'", escaped(path));
			op.node = dir->entries[k].node->id;
			op.mtime_s = st.st_mtim.tv_sec;
			op.mtime_ns = st.st_mtim.tv_nsec;
			record_fact(run.record, &op, /* bytes= */ NULL);
		}
	}
}

static void finish(void)
{
	struct target t = { .is_held = true };
	unsigned i;

	for (i = 0; i < HELD_MAX; i++) {
		if (run.held[i].fd < 0)
			continue;
		t.node = run.held[i].node;
		t.fd = run.held[i].fd;
		snprintf(t.path, sizeof(t.path), "held object %u", t.node->id);
		check_bytes(&t);
		held_close(&run.held[i]);
	}
	if (run.map.node)
		map_end();
	if (model_compare(&run.model, run.options, stdout) > 0)
		fail(EVERY_ERRNO, "the directory is not what was written");
	note_times();
	run.record = record_close(run.record);
	printf("writer %u: %llu operations", run.options->id, (unsigned long long)run.done);
	for (i = 0; i < OP_MAX; i++)
		if (run.refused[i])
			printf(", %s refused %llu times", op_names[i],
			       (unsigned long long)run.refused[i]);
	putchar('\n');
	model_done(&run.model);
}

void ops_run(const struct writer_options *options, bool is_churn)
{
	struct pace pace;

	start(options);
	pace_start(&pace, options);
	while (pace_next(&pace))
		make_step(is_churn);
	finish();
}
