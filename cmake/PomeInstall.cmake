# What `cmake --install` puts where: headers, both libraries, a pkg-config file, the command.
include(GNUInstallDirs)
file(RELATIVE_PATH POME_PC_TO_PREFIX "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
configure_file(cmake/pome.pc.in pome.pc @ONLY)
install(TARGETS pome_static pome_shared
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/pome DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/pome.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(POME_CLI)
  install(TARGETS pome RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
