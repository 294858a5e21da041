# SPDX-License-Identifier: Apache-2.0
#
# How a test is registered. Names are <label>/<name>, after asan/ or tsan/ in a
# sanitizer's tree, so that one run of ctest can hold several trees. A test finds
#   FERRYFS_SOURCE_DIR  the checkout, read-only by agreement
#   FERRYFS_BINARY_DIR  the build tree; its top, with the programs, leads PATH
#   TMPDIR              where it makes its temporary directory (tests/run sets it)
#   FERRYFS_LONG        1 if it may take long
# and skips itself with exit code 77.

if(FERRYFS_SANITIZE STREQUAL "thread")
	set(ferry_test_prefix tsan/)
elseif(FERRYFS_SANITIZE)
	set(ferry_test_prefix asan/)
else()
	set(ferry_test_prefix "")
endif()

# Sanitizers' fixed shadow maps collide with a kernel that randomises addresses widely.
set(ferry_test_launcher "")
if(FERRYFS_SANITIZE)
	execute_process(COMMAND setarch -R true RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
	if(result EQUAL 0)
		set(ferry_test_launcher setarch -R)
	endif()
endif()

# ferry_test(<label> <name> COMMAND <word>... [TIMEOUT <seconds>] [MOUNTS] [LONG])
# TIMEOUT: 60 by default; five times as much under a sanitizer.
# MOUNTS: it mounts or serves something: runs alone, and is checked for leftovers.
# LONG: runs with `tests/run --long` only.
function(ferry_test label name)
	cmake_parse_arguments(PARSE_ARGV 2 arg "MOUNTS;LONG" "TIMEOUT" "COMMAND")
	if(arg_UNPARSED_ARGUMENTS OR NOT arg_COMMAND)
		message(FATAL_ERROR "${label}/${name}: what is '${arg_UNPARSED_ARGUMENTS}'?")
	endif()
	if(NOT arg_TIMEOUT)
		set(arg_TIMEOUT 60)
	endif()
	if(FERRYFS_SANITIZE)
		math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")
	endif()
	set(labels ${label})
	if(arg_LONG)
		list(APPEND labels long)
	endif()

	set(test ${ferry_test_prefix}${label}/${name})
	add_test(NAME ${test} COMMAND ${ferry_test_launcher} ${arg_COMMAND})
	set_tests_properties(${test} PROPERTIES
		LABELS "${labels}"
		TIMEOUT ${arg_TIMEOUT}
		SKIP_RETURN_CODE 77
		ENVIRONMENT_MODIFICATION "PATH=path_list_prepend:${PROJECT_BINARY_DIR}"
	)
	set(environment
		"FERRYFS_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
		"FERRYFS_BINARY_DIR=${PROJECT_BINARY_DIR}"
	)
	if(FERRYFS_SANITIZE)
		list(APPEND environment
			"ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
			"UBSAN_OPTIONS=print_stacktrace=1"
			"TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp"
		)
	endif()
	set_tests_properties(${test} PROPERTIES ENVIRONMENT "${environment}")
	if(arg_MOUNTS)
		set_tests_properties(${test} PROPERTIES RUN_SERIAL TRUE FIXTURES_REQUIRED machine)
	endif()
endfunction()

# ferry_script_test(<label> <name> [SCRIPT <file>] [ARGS <word>...] [TIMEOUT ...] [MOUNTS] [LONG])
# Runs a script of the folder it is called from: SCRIPT, by default <name>.sh.
function(ferry_script_test label name)
	cmake_parse_arguments(PARSE_ARGV 2 arg "" "SCRIPT" "ARGS")
	if(NOT arg_SCRIPT)
		set(arg_SCRIPT ${name}.sh)
	endif()
	set(script "${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT}")
	if(NOT EXISTS "${script}")
		message(FATAL_ERROR "no such test: '${script}'")
	endif()
	ferry_test(${label} ${name} COMMAND "${script}" ${arg_ARGS} ${arg_UNPARSED_ARGUMENTS})
endfunction()

# ferry_program_test(<label> <name> SOURCES <file>... [LIBS <target>...] [ARGS <word>...]
#                    [WRAP <function>...] [TIMEOUT ...] [MOUNTS] [LONG])
# Builds the program <label>_<name> and runs it with ARGS. WRAP: the linker's --wrap.
function(ferry_program_test label name)
	cmake_parse_arguments(PARSE_ARGV 2 arg "MOUNTS;LONG" "TIMEOUT" "SOURCES;LIBS;ARGS;WRAP")
	set(options ${arg_UNPARSED_ARGUMENTS})
	foreach(option IN ITEMS MOUNTS LONG)
		if(arg_${option})
			list(APPEND options ${option})
		endif()
	endforeach()
	if(arg_TIMEOUT)
		list(APPEND options TIMEOUT ${arg_TIMEOUT})
	endif()
	set(target ${label}_${name})
	add_executable(${target} ${arg_SOURCES})
	target_link_libraries(${target} PRIVATE ${arg_LIBS} project_flags)
	foreach(function IN LISTS arg_WRAP)
		target_link_options(${target} PRIVATE -Wl,--wrap=${function})
	endforeach()
	ferry_test(${label} ${name} COMMAND $<TARGET_FILE:${target}> ${arg_ARGS} ${options})
endfunction()
