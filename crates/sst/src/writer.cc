// The C interface to RocksDB's writer of SST files. RocksDB's own C interface cannot keep the
// written pages in the page cache.
//
// Functions that can fail return null, or an error text that the caller frees by
// steelyard_sst_free_text. No function lets an exception out: running out of memory ends the
// process.

#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

char* text_of(const rocksdb::Status& status) {
  if (status.ok()) return nullptr;
  char* text = strdup(status.ToString().c_str());
  // Null would mean success.
  if (text == nullptr) abort();
  return text;
}

rocksdb::Slice slice(const char* bytes, size_t length) { return rocksdb::Slice(bytes, length); }

}  // namespace

extern "C" {

// Must have the same layout as `Format` in lib.rs.
struct steelyard_sst_format {
  uint64_t block_bytes;
  double bloom_bits;
  uint64_t bytes_per_sync;
  uint32_t format_version;
  uint8_t compression;
  uint8_t stays_in_page_cache;
  uint8_t direct_writes;
};

void* steelyard_sst_create(const steelyard_sst_format* format) noexcept {
  rocksdb::BlockBasedTableOptions table;
  table.block_size = format->block_bytes;
  table.format_version = format->format_version;
  table.no_block_cache = true;
  if (format->bloom_bits > 0) {
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(format->bloom_bits, false));
    table.whole_key_filtering = true;
  }
  rocksdb::Options options;
  options.compression = static_cast<rocksdb::CompressionType>(format->compression);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  rocksdb::EnvOptions env_options;
  env_options.bytes_per_sync = format->bytes_per_sync;
  env_options.use_direct_writes = format->direct_writes != 0;
  return new rocksdb::SstFileWriter(env_options, options, nullptr, format->stays_in_page_cache == 0);
}

void steelyard_sst_destroy(void* writer) noexcept { delete static_cast<rocksdb::SstFileWriter*>(writer); }

char* steelyard_sst_open(void* writer, const char* path, size_t length) noexcept {
  return text_of(static_cast<rocksdb::SstFileWriter*>(writer)->Open(std::string(path, length)));
}

char* steelyard_sst_put(void* writer, const char* row, size_t row_length, const char* value,
                        size_t value_length) noexcept {
  return text_of(static_cast<rocksdb::SstFileWriter*>(writer)->Put(slice(row, row_length),
                                                                    slice(value, value_length)));
}

char* steelyard_sst_delete(void* writer, const char* row, size_t length) noexcept {
  return text_of(static_cast<rocksdb::SstFileWriter*>(writer)->Delete(slice(row, length)));
}

char* steelyard_sst_delete_range(void* writer, const char* from, size_t from_length, const char* to,
                                 size_t to_length) noexcept {
  return text_of(static_cast<rocksdb::SstFileWriter*>(writer)->DeleteRange(slice(from, from_length),
                                                                            slice(to, to_length)));
}

char* steelyard_sst_finish(void* writer) noexcept {
  return text_of(static_cast<rocksdb::SstFileWriter*>(writer)->Finish());
}

uint64_t steelyard_sst_file_size(void* writer) noexcept {
  return static_cast<rocksdb::SstFileWriter*>(writer)->FileSize();
}

void steelyard_sst_free_text(char* text) noexcept { free(text); }

}  // extern "C"
