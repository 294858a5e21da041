# SPDX-License-Identifier: Apache-2.0
#
# What a folder's CMakeLists.txt says: one library, or the programs, of listed files.

# ferry_library(<target> SOURCES <file>... LIBS <target>...)
# A folder that has no source files yet is a library of its headers alone.
function(ferry_library name)
	cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
	if(arg_UNPARSED_ARGUMENTS)
		message(FATAL_ERROR "${name}: what is '${arg_UNPARSED_ARGUMENTS}'?")
	endif()
	if(arg_SOURCES)
		add_library(${name} STATIC ${arg_SOURCES})
		target_link_libraries(${name} PUBLIC ${arg_LIBS} PRIVATE project_flags)
	else()
		add_library(${name} INTERFACE)
		target_link_libraries(${name} INTERFACE ${arg_LIBS})
	endif()
endfunction()

# ferry_program(<target> SOURCES <file>... LIBS <target>...)
# Ends up at the top of the build tree, and is installed.
function(ferry_program name)
	cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
	if(arg_UNPARSED_ARGUMENTS)
		message(FATAL_ERROR "${name}: what is '${arg_UNPARSED_ARGUMENTS}'?")
	endif()
	if(NOT arg_SOURCES)
		message(WARNING "${name} has no sources yet")
		return()
	endif()
	add_executable(${name} ${arg_SOURCES})
	target_link_libraries(${name} PRIVATE ${arg_LIBS} project_flags)
	set_target_properties(${name} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
	install(TARGETS ${name} RUNTIME DESTINATION "${CMAKE_INSTALL_SBINDIR}")
endfunction()
