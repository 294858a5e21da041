/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tools/plan.h"

static const char text[] =
	"1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
	"20 1 8:2 / /srv rw - ext4 /dev/sdb rw\n"
	"21 20 8:3 / /srv/data/nested\\040one rw master:3 propagate_from:2 - xfs /dev/sdc rw\n"
	"22 1 8:2 /data/sub /mnt/bind rw - ext4 /dev/sdb rw\n"
	"23 1 0:50 / /mnt/over rw - tmpfs  rw\n"
	"24 23 0:51 / /mnt/over rw - fuse.ferryfs mnt-over rw\n"
	"25 1 8:2 /data/other /mnt/hidden rw - ext4 /dev/sdb rw\n";

static int setup(void **state)
{
	static struct mountinfo mounts;
	FILE *file = fmemopen((void *)text, strlen(text), "r");

	assert_non_null(file);
	assert_int_equal(mountinfo_load(file, &mounts), 0);
	fclose(file);
	*state = &mounts;
	return 0;
}

static int teardown(void **state)
{
	mountinfo_done(*state);
	return 0;
}

static void lines_are_understood(void **state)
{
	const struct mountinfo *mounts = *state;

	assert_int_equal(mounts->count, 7);
	assert_string_equal(mounts->entries[2].mountpoint, "/srv/data/nested one");
	assert_string_equal(mounts->entries[2].type, "xfs");
	assert_string_equal(mounts->entries[3].root, "/data/sub");
	assert_string_equal(mounts->entries[5].source, "mnt-over");
}

static void the_topmost_of_stacked_mounts_counts(void **state)
{
	assert_int_equal(mountinfo_at(*state, "/mnt/over")->id, 24);
	assert_int_equal(mountinfo_covering(*state, "/mnt/over/deep/er")->id, 24);
	assert_int_equal(mountinfo_covering(*state, "/mnt/overt")->id, 1);
	assert_int_equal(mountinfo_covering(*state, "/srv")->id, 20);
	assert_int_equal(mountinfo_covering(*state, "/")->id, 1);
	assert_null(mountinfo_at(*state, "/srv/data"));
}

static void nested_mounts_are_found(void **state)
{
	const struct mount_entry *srv = mountinfo_at(*state, "/srv");

	assert_int_equal(mountinfo_below(*state, srv, "/srv/data")->id, 21);
	assert_null(mountinfo_below(*state, srv, "/srv/dat"));
	assert_null(mountinfo_below(*state, srv, "/srv/data/nested one"));
}

static void inside_is_by_whole_components(void **state)
{
	(void)state;
	assert_true(mountinfo_path_is_inside("/a/b", "/a"));
	assert_true(mountinfo_path_is_inside("/a", "/a"));
	assert_true(mountinfo_path_is_inside("/a", "/"));
	assert_true(mountinfo_path_is_inside("/a/b", "/a/"));
	assert_false(mountinfo_path_is_inside("/ab", "/a"));
	assert_false(mountinfo_path_is_inside("/a", "/a/b"));
}

static void bind_mounts_hide_nothing(void **state)
{
	assert_true(mountinfo_is_inside(*state, "/mnt/bind", "/srv/data"));
	assert_true(mountinfo_is_inside(*state, "/mnt/bind/x", "/srv/data/sub"));
	assert_true(mountinfo_is_inside(*state, "/srv/data/sub/x", "/mnt/bind"));
	assert_false(mountinfo_is_inside(*state, "/srv/data", "/mnt/bind"));
	assert_false(mountinfo_is_inside(*state, "/mnt/hidden", "/mnt/bind"));
}

static void fill_plan(struct plan *plan, const char *source, const char *target, const char *mount)
{
	*plan = (struct plan){ .name = "n" };
	strcpy(plan->source, source);
	strcpy(plan->target, target);
	strcpy(plan->mount, mount);
	strcpy(plan->state.path, "/var/lib/ferryfs/n");
	strcpy(plan->log, "/var/lib/ferryfs/n/log");
}

static void sides_that_overlap_are_refused(void **state)
{
	static const char *const bad[][3] = {
		{ "/home/a", "/home/a/b", "/home/a" },
		{ "/home/a/b", "/home/a", "/home/a/b" },
		{ "/home/a", "/home/a", "/home/a" },
		{ "/srv/data", "/mnt/bind/x", "/srv/data" },
		{ "/home/a", "/", "/home/a" },
		{ "/home/a", "/home/b", "/home/b" },
		{ "/home/a", "/home/b", "/home/a/c" },
		{ "/home/a", "/home/b", "/home" },
		{ "/var/lib", "/home/b", "/var/lib" },
		{ "/home/a", "/var/lib/ferryfs/n", "/home/a" },
	};
	struct plan plan;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		fill_plan(&plan, bad[i][0], bad[i][1], bad[i][2]);
		assert_int_equal(checks_overlap(&plan, *state), -EINVAL);
	}
	fill_plan(&plan, "/home/a", "/home/b", "/home/c");
	strcpy(plan.log, "/home/a/log");
	assert_int_equal(checks_overlap(&plan, *state), -EINVAL);
}

static void sides_apart_are_fine(void **state)
{
	struct plan plan;

	fill_plan(&plan, "/home/a", "/home/b", "/home/a");
	assert_int_equal(checks_overlap(&plan, *state), 0);
	assert_int_equal(checks_mounts(&plan, *state), 0);
	fill_plan(&plan, "/home/a", "/home/b", "/home/c");
	assert_int_equal(checks_overlap(&plan, *state), 0);
	fill_plan(&plan, "/home/a", "nfs://h/home/a", "/home/a");
	plan.is_url = true;
	assert_int_equal(checks_overlap(&plan, *state), 0);
	fill_plan(&plan, "/mnt/bind", "/mnt/hidden", "/mnt/bind");
	assert_int_equal(checks_overlap(&plan, *state), 0);
}

static void mounts_in_the_way_are_refused(void **state)
{
	struct plan plan;

	fill_plan(&plan, "/srv/data", "/home/b", "/srv/data");
	assert_int_equal(checks_mounts(&plan, *state), -EBUSY);
	fill_plan(&plan, "/mnt/over", "/home/b", "/mnt/over");
	assert_int_equal(checks_mounts(&plan, *state), -EBUSY);
	fill_plan(&plan, "/home/a", "/mnt/over/x", "/home/a");
	assert_int_equal(checks_mounts(&plan, *state), -EBUSY);
}

static void what_is_no_mountinfo_is_refused(void **state)
{
	struct mountinfo mounts;
	FILE *file = fmemopen((void *)"1 0 8:1 / / rw\n", 15, "r");

	(void)state;
	assert_non_null(file);
	assert_int_equal(mountinfo_load(file, &mounts), -EIO);
	fclose(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_understood),
		cmocka_unit_test(the_topmost_of_stacked_mounts_counts),
		cmocka_unit_test(nested_mounts_are_found),
		cmocka_unit_test(inside_is_by_whole_components),
		cmocka_unit_test(bind_mounts_hide_nothing),
		cmocka_unit_test(sides_that_overlap_are_refused),
		cmocka_unit_test(sides_apart_are_fine),
		cmocka_unit_test(mounts_in_the_way_are_refused),
		cmocka_unit_test(what_is_no_mountinfo_is_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
