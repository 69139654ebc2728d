# What `cmake --install` puts down: the farverbs binary; one static library with all rooms that the
# C++ API stands on; the API's headers with what they include; pkg-config and CMake package files.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS farverbs RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES README.md LICENSE CHANGELOG.md ARCHITECTURE.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
# For Wireshark and tshark: -X lua_script:.../farverbs.lua
install(FILES dissector/farverbs.lua DESTINATION ${CMAKE_INSTALL_DATADIR}/farverbs)

if(NOT TARGET farverbs_verbs)
  return()
endif()

# The headers, found by following #include from the API's: whatever they need is there, and no more.
set(pending farverbs/verbs/verbs.h farverbs/verbs/rendezvous.h)
set(headers)
while(pending)
  list(POP_FRONT pending header)
  if(header IN_LIST headers)
    continue()
  endif()
  list(APPEND headers ${header})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS src/${header})
  file(STRINGS src/${header} lines REGEX "^#include \"farverbs/")
  foreach(line ${lines})
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    list(APPEND pending ${included})
  endforeach()
endwhile()
foreach(header ${headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES src/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()

add_library(farverbs_library STATIC)
set_target_properties(farverbs_library PROPERTIES
  OUTPUT_NAME farverbs EXPORT_NAME verbs LINKER_LANGUAGE CXX)
target_compile_features(farverbs_library INTERFACE cxx_std_20)
target_include_directories(farverbs_library INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set(external)
foreach(room base wire model cc crypto io proto engine verbs)
  if(TARGET farverbs_${room})
    get_target_property(type farverbs_${room} TYPE)
    if(type STREQUAL STATIC_LIBRARY)
      target_sources(farverbs_library PRIVATE $<TARGET_OBJECTS:farverbs_${room}>)
    endif()
    get_property(libraries GLOBAL PROPERTY FARVERBS_LIBRARIES_OF_${room})
    list(APPEND external ${libraries})
  endif()
endforeach()
list(REMOVE_DUPLICATES external)

# The library is static, so its users link what it links.
set(pkg_config_libs "-pthread")
set(pkg_config_requires "")
set(find_dependencies "find_dependency(Threads)\n")
foreach(library ${external})
  if(library STREQUAL Threads::Threads)
    # Above.
  elseif(library STREQUAL fmt::fmt)
    string(APPEND pkg_config_requires " fmt")
    string(APPEND find_dependencies "find_dependency(fmt)\n")
  elseif(library MATCHES "^[A-Za-z0-9_]+$")
    string(APPEND pkg_config_libs " -l${library}")
  else()
    message(FATAL_ERROR "cmake/FarverbsInstall.cmake does not know how a user links ${library}")
  endif()
  target_link_libraries(farverbs_library INTERFACE ${library})
endforeach()

install(TARGETS farverbs_library EXPORT FarverbsTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/Farverbs)
install(EXPORT FarverbsTargets NAMESPACE Farverbs:: DESTINATION ${package_directory})
file(CONFIGURE OUTPUT FarverbsConfig.cmake @ONLY CONTENT
"include(CMakeFindDependencyMacro)
@find_dependencies@include(\${CMAKE_CURRENT_LIST_DIR}/FarverbsTargets.cmake)
")
write_basic_package_version_file(FarverbsConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/FarverbsConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/FarverbsConfigVersion.cmake
  DESTINATION ${package_directory})

# Paths relative to the file, so that an installed tree can be moved.
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
file(CONFIGURE OUTPUT farverbs.pc @ONLY CONTENT
"prefix=\${pcfiledir}/@to_prefix@
includedir=\${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
libdir=\${pcfiledir}/..

Name: farverbs
Description: RDMA verbs on any network, in userspace
Version: @PROJECT_VERSION@
Requires:@pkg_config_requires@
Cflags: -I\${includedir} -std=c++20
Libs: -L\${libdir} -lfarverbs @pkg_config_libs@
")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/farverbs.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
