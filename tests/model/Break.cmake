# SPDX-License-Identifier: Apache-2.0
#
# Makes a source file with one rule broken: cmake -D BROKEN=<file> -D SOURCE_DIR=<top>
# -D OUT=<file> -P Break.cmake. BROKEN says in its first line what is broken, in its second
# which file, and then, as often as needed,
#	<<<<
#	text, which must be there exactly once
#	====
#	what comes in its place
#	>>>>

file(READ "${BROKEN}" spec)
if(NOT spec MATCHES "^[^\n]*\n([^\n]+)\n")
	message(FATAL_ERROR "'${BROKEN}' does not begin with what it breaks and where")
endif()
set(source "${CMAKE_MATCH_1}")
file(READ "${SOURCE_DIR}/${source}" text)

string(FIND "${spec}" "<<<<\n" begin)
while(NOT begin EQUAL -1)
	math(EXPR begin "${begin} + 5")
	string(SUBSTRING "${spec}" ${begin} -1 spec)
	string(FIND "${spec}" "====\n" middle)
	string(FIND "${spec}" ">>>>\n" end)
	string(SUBSTRING "${spec}" 0 ${middle} old)
	math(EXPR middle "${middle} + 5")
	math(EXPR length "${end} - ${middle}")
	string(SUBSTRING "${spec}" ${middle} ${length} new)

	string(FIND "${text}" "${old}" first)
	string(FIND "${text}" "${old}" last REVERSE)
	if(first EQUAL -1 OR NOT first EQUAL last)
		message(FATAL_ERROR "'${BROKEN}' breaks a rule in ${source} by changing\n${old}\n"
			"which is not there exactly once any more: change it together with the rule")
	endif()
	string(REPLACE "${old}" "${new}" text "${text}")
	string(FIND "${spec}" "<<<<\n" begin)
endwhile()
file(WRITE "${OUT}" "${text}")
