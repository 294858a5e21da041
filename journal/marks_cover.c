/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that need no record of their own. What a scan yields would be found again by the
 * same scan, so such a name is covered by the scan's record, which stays until the last
 * of them is cleared: a cleared scan with covered names is held. A name that is spilled
 * gets a record first, since only memory knows what is covered.
 *
 * Covered names are counted in their directory's entry, which names hold in memory.
 */

#include "journal/marks_internal.h"

void marks_put_scanned_name_locked(struct marks *m, const struct marks_task *scan, const char *name)
{
	const struct entry *s = scan->entry;
	struct entry *e = marks_find(m, MARKS_NAME, scan->object, name);

	assert(m->is_composing);
	assert(scan->kind == MARKS_SCAN && s->is_claimed);
	if (!e && s->is_marked && !m->spill[MARKS_NAME].is_active)
		e = marks_get(m, MARKS_NAME, scan->object, name);
	else
		e = NULL;
	if (!e) {
		/* It is there, or what the journal has of it is not known, or there is no memory. */
		marks_put_name_locked(m, scan->object, name);
		return;
	}
	e->is_covered = true;
	name_of(e)->dir->covered++;
	m->covered++;
	e->batch = s->batch;
	marks_set_marked(m, e, true);
	marks_settle(m, e);
}

void marks_uncover(struct marks *m, struct entry *e)
{
	struct object_entry *dir = name_of(e)->dir;
	struct entry *s;

	assert(e->is_covered && dir->covered > 0);
	e->is_covered = false;
	m->covered--;
	if (--dir->covered > 0)
		return;
	s = marks_find(m, MARKS_SCAN, e->id, NULL);
	if (!s || !s->is_held)
		return;
	marks_delete(m, JOURNAL_MARK_SCAN, e->id, 0, NULL);
	marks_release_scan(m, s);
	marks_settle(m, s);
}

void marks_release_scan(struct marks *m, struct entry *s)
{
	if (s->is_held)
		m->held--;
	s->is_held = false;
}

bool marks_covers_names(struct marks *m, uint64_t dir)
{
	struct entry *e = marks_find(m, MARKS_OBJECT, dir, NULL);

	return e && object_of(e)->covered > 0;
}

void marks_end_scan(struct marks *m, struct entry *s)
{
	marks_set_compare(m, s, false);
	s->is_of_before = false;
	if (!marks_covers_names(m, s->id)) {
		marks_delete(m, JOURNAL_MARK_SCAN, s->id, 0, NULL);
		return;
	}
	if (!s->is_held)
		m->held++;
	s->is_held = true;
}
