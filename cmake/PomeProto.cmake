# Generates C for a .proto with protobuf-c; the result is a build product, never committed.
find_program(PROTOC_C NAMES protoc-c protoc-gen-c REQUIRED)
function(pome_proto out proto)
  get_filename_component(name ${proto} NAME_WE)
  get_filename_component(dir ${proto} DIRECTORY)
  set(gen ${PROJECT_BINARY_DIR}/proto/formats)
  file(MAKE_DIRECTORY ${gen})
  add_custom_command(
    OUTPUT ${gen}/${name}.pb-c.c ${gen}/${name}.pb-c.h
    COMMAND ${PROTOC_C} --c_out=${gen} --proto_path=${PROJECT_SOURCE_DIR}/${dir} ${PROJECT_SOURCE_DIR}/${proto}
    DEPENDS ${PROJECT_SOURCE_DIR}/${proto}
    VERBATIM)
  set_source_files_properties(${gen}/${name}.pb-c.c PROPERTIES COMPILE_OPTIONS "-w")
  set(${out} ${gen}/${name}.pb-c.c PARENT_SCOPE)
endfunction()
