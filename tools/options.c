/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/text.h"
#include "version.h"

enum {
	CONNECTIONS_DEFAULT = 2,
	HOLD_DOWN_S_DEFAULT = 60,
	THREADS_MIN_DEFAULT = 4,
	THREADS_MAX_DEFAULT = 16,
};

enum { /* long options without a letter */
       OPTION_AT = 256,
       OPTION_NAME,
       OPTION_STATE,
       OPTION_LOG,
       OPTION_WORKERS,
       OPTION_CONNECTIONS,
       OPTION_THREADS,
       OPTION_HOLD_DOWN,
       OPTION_ADOPT,
       OPTION_OPENS,
       OPTION_WRITEBACK,
};

static const struct option long_options[] = {
	{ "foreground", no_argument, NULL, 'f' },
	{ "debug", no_argument, NULL, 'd' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ "at", required_argument, NULL, OPTION_AT },
	{ "name", required_argument, NULL, OPTION_NAME },
	{ "state", required_argument, NULL, OPTION_STATE },
	{ "log", required_argument, NULL, OPTION_LOG },
	{ "workers", required_argument, NULL, OPTION_WORKERS },
	{ "connections", required_argument, NULL, OPTION_CONNECTIONS },
	{ "threads", required_argument, NULL, OPTION_THREADS },
	{ "hold-down", required_argument, NULL, OPTION_HOLD_DOWN },
	{ "adopt", no_argument, NULL, OPTION_ADOPT },
	{ "opens", required_argument, NULL, OPTION_OPENS },
	{ "writeback", no_argument, NULL, OPTION_WRITEBACK },
	{ 0 },
};

static void print_help(void)
{
	printf("Usage: ferryfs [options] SOURCE TARGET\n"
	       "\n"
	       "Mounts over the directory SOURCE and copies it to TARGET while it stays in use;\n"
	       "'ferry failover' then makes the mount go on from TARGET. TARGET is an empty\n"
	       "directory, or nfs://HOST/EXPORT[?nfsport=N&mountport=N] (NFSv3).\n"
	       "Started again on the same pair, it resumes.\n"
	       "\n"
	       "  -f, --foreground     do not go to the background\n"
	       "      --at DIR         mount at DIR, not over SOURCE\n"
	       "      --name NAME      what 'ferry' calls it (default: from SOURCE's path)\n"
	       "      --state DIR      where the journal is (default: /var/lib/ferryfs/NAME)\n"
	       "      --log FILE       log here (default: ferryfs.log in the state directory;\n"
	       "                       in the foreground: standard error)\n"
	       "      --workers N      that copy (1 to %u; default: as suits TARGET)\n"
	       "      --connections N  to an nfs target (1 to %u; default %u)\n"
	       "      --threads N      that serve the mount (1 to %u; default: by the processors)\n"
	       "      --hold-down S    seconds a late write of a lost connection is waited for\n"
	       "                       (default %u)\n"
	       "      --opens zero|full  whether opening a file is a message to ferryfs (default:\n"
	       "                       zero, which is much quicker with small files; full lets\n"
	       "                       direct writes to one file run side by side)\n"
	       "      --writeback      let writes stay in the kernel's cache for a while: quicker,\n"
	       "                       but lost if ferryfs dies, unless they were fsynced\n"
	       "  -d, --debug          log what is done in detail\n"
	       "  -h, --help           print this\n"
	       "  -V, --version        print the version\n",
	       OPTIONS_WORKERS_MAX, OPTIONS_CONNECTIONS_MAX, CONNECTIONS_DEFAULT,
	       OPTIONS_THREADS_MAX, HOLD_DOWN_S_DEFAULT);
}

static int usage(const char *format, ...) PRINTF_LIKE(1, 2);

static int usage(const char *format, ...)
{
	va_list args;

	fputs("ferryfs: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs(" (see 'ferryfs --help')\n", stderr);
	return OPTIONS_E_USAGE;
}

static unsigned default_threads(void)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned threads =
		processors > 0 && processors <= OPTIONS_THREADS_MAX ? 2 * (unsigned)processors : 0;

	if (threads < THREADS_MIN_DEFAULT)
		return THREADS_MIN_DEFAULT;
	return threads < THREADS_MAX_DEFAULT ? threads : THREADS_MAX_DEFAULT;
}

static int parse_count(const char *option, unsigned min, unsigned max, unsigned *ret_count)
{
	int r = text_parse_count(optarg, min, max, ret_count);

	if (r < 0)
		return usage("--%s takes a number from %u to %u, not '%s'", option, min, max,
			     optarg);
	return 0;
}

static int parse_hold_down(struct options *options)
{
	uint64_t ms;
	int r;

	r = text_parse_duration(optarg, &ms);
	if (r < 0 || ms > OPTIONS_HOLD_DOWN_S_MAX * 1000u)
		return usage("--hold-down takes up to %u seconds, not '%s'",
			     OPTIONS_HOLD_DOWN_S_MAX, optarg);
	options->hold_down_s = (unsigned)((ms + 999) / 1000);
	return 0;
}

static int parse_opens(struct options *options)
{
	if (strcmp(optarg, "zero") == 0)
		options->opens = OVERLAY_OPENS_ZERO;
	else if (strcmp(optarg, "full") == 0)
		options->opens = OVERLAY_OPENS_FULL;
	else
		return usage("--opens takes 'zero' or 'full', not '%s'", optarg);
	return 0;
}

static int parse_path(const char *option, const char **ret_path)
{
	if (optarg[0] == '\0')
		return usage("--%s takes a path", option);
	*ret_path = optarg;
	return 0;
}

/* A flat switch over the options. */
static int parse_option(int option, char *const argv[], struct options *options)
{
	switch (option) {
	case 'f':
		options->is_foreground = true;
		return 0;
	case 'd':
		options->is_debug = true;
		return 0;
	case 'h':
		print_help();
		return OPTIONS_E_DONE;
	case 'V':
		printf("ferryfs %s\n", FERRYFS_VERSION);
		return OPTIONS_E_DONE;
	case OPTION_AT:
		return parse_path("at", &options->at);
	case OPTION_NAME:
		if (!text_is_name(optarg))
			return usage("--name takes up to %u letters, digits, '.', '_' and '-', "
				     "a letter or digit first, not '%s'",
				     TEXT_NAME_MAX, optarg);
		options->name = optarg;
		return 0;
	case OPTION_STATE:
		return parse_path("state", &options->state);
	case OPTION_LOG:
		return parse_path("log", &options->log);
	case OPTION_WORKERS:
		return parse_count("workers", 1, OPTIONS_WORKERS_MAX, &options->workers);
	case OPTION_CONNECTIONS:
		return parse_count("connections", 1, OPTIONS_CONNECTIONS_MAX,
				   &options->connections);
	case OPTION_THREADS:
		return parse_count("threads", 1, OPTIONS_THREADS_MAX, &options->threads);
	case OPTION_HOLD_DOWN:
		return parse_hold_down(options);
	case OPTION_ADOPT:
		options->is_adopting = true;
		return 0;
	case OPTION_OPENS:
		return parse_opens(options);
	case OPTION_WRITEBACK:
		options->is_writeback = true;
		return 0;
	case ':':
		return usage("'%s' needs an argument", argv[optind - 1]);
	default:
		if (optopt)
			return usage("unknown option '-%c'", optopt);
		return usage("unknown option '%s'", argv[optind - 1]);
	}
}

int options_parse(int argc, char *argv[], struct options *ret_options)
{
	struct options options = {
		.connections = CONNECTIONS_DEFAULT,
		.threads = default_threads(),
		.hold_down_s = HOLD_DOWN_S_DEFAULT,
	};
	int option, r;

	opterr = 0;
	optind = 0; /* also forgets an earlier parse */
	while ((option = getopt_long(argc, argv, ":fdhV", long_options, NULL)) != -1) {
		r = parse_option(option, argv, &options);
		if (r != 0)
			return r;
	}
	if (argc - optind < 2)
		return usage("%s is missing", argc == optind ? "SOURCE" : "TARGET");
	if (argc - optind > 2)
		return usage("what is '%s'? SOURCE and TARGET have been given", argv[optind + 2]);
	options.source = argv[optind];
	options.target = argv[optind + 1];
	if (options.source[0] == '\0' || options.target[0] == '\0')
		return usage("%s is empty", options.source[0] == '\0' ? "SOURCE" : "TARGET");
	if (options_is_url(options.source))
		return usage("SOURCE is a directory, not a URL: mount '%s' first", options.source);
	if (options_is_url(options.target) && strncmp(options.target, "nfs://", 6) != 0)
		return usage("TARGET '%s' is no nfs:// URL: mount it and give its directory",
			     options.target);
	*ret_options = options;
	return 0;
}

bool options_is_url(const char *target)
{
	size_t scheme = strspn(target, "abcdefghijklmnopqrstuvwxyz0123456789+.-");

	return scheme > 0 && strncmp(target + scheme, "://", 3) == 0;
}
