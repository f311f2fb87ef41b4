// The C interface to RocksDB's writer of SST files. RocksDB's own C interface cannot keep the
// written pages in the page cache.
//
// Functions that can fail return null, or an error text that the caller frees by
// steelyard_sst_free_text. No function lets an exception out: running out of memory ends the
// process.

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
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

// A file whose bytes are appended to a string, from which the caller takes them.
class MemoryFile : public rocksdb::FSWritableFile {
 public:
  explicit MemoryFile(std::string* built) : built_(built) {}

  using rocksdb::FSWritableFile::Append;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions&,
                           rocksdb::IODebugContext*) override {
    built_->append(data.data(), data.size());
    size_ += data.size();
    return rocksdb::IOStatus::OK();
  }
  rocksdb::IOStatus Close(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::OK();
  }
  rocksdb::IOStatus Flush(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::OK();
  }
  rocksdb::IOStatus Sync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::OK();
  }
  uint64_t GetFileSize(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override { return size_; }

 private:
  std::string* const built_;
  uint64_t size_ = 0;
};

// A file system in which every new file is a MemoryFile of the same string.
class MemoryFileSystem : public rocksdb::FileSystemWrapper {
 public:
  explicit MemoryFileSystem(std::string* built)
      : rocksdb::FileSystemWrapper(rocksdb::FileSystem::Default()), built_(built) {}

  const char* Name() const override { return "SteelyardMemory"; }
  rocksdb::IOStatus NewWritableFile(const std::string&, const rocksdb::FileOptions&,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext*) override {
    file->reset(new MemoryFile(built_));
    return rocksdb::IOStatus::OK();
  }
  // A writer that fails deletes its file by its name.
  rocksdb::IOStatus DeleteFile(const std::string&, const rocksdb::IOOptions&,
                               rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::OK();
  }

 private:
  std::string* const built_;
};

// A writer, and what it writes to if its file is in memory. Members are destroyed from the last to
// the first, so the writer goes before what it refers to.
struct Writer {
  std::string built;
  std::unique_ptr<rocksdb::Env> env;
  std::unique_ptr<rocksdb::SstFileWriter> file;
};

rocksdb::SstFileWriter* file_of(void* writer) { return static_cast<Writer*>(writer)->file.get(); }

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

// With `in_memory` the file is not written to a device: see steelyard_sst_built.
void* steelyard_sst_create(const steelyard_sst_format* format, uint8_t in_memory) noexcept {
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
  std::unique_ptr<Writer> writer(new Writer);
  bool leaves_page_cache = false;
  if (in_memory != 0) {
    writer->env = rocksdb::NewCompositeEnv(std::make_shared<MemoryFileSystem>(&writer->built));
    options.env = writer->env.get();
  } else {
    env_options.bytes_per_sync = format->bytes_per_sync;
    env_options.use_direct_writes = format->direct_writes != 0;
    leaves_page_cache = format->stays_in_page_cache == 0;
  }
  writer->file.reset(new rocksdb::SstFileWriter(env_options, options, nullptr, leaves_page_cache));
  return writer.release();
}

void steelyard_sst_destroy(void* writer) noexcept { delete static_cast<Writer*>(writer); }

char* steelyard_sst_open(void* writer, const char* path, size_t length) noexcept {
  return text_of(file_of(writer)->Open(std::string(path, length)));
}

char* steelyard_sst_put(void* writer, const char* row, size_t row_length, const char* value,
                        size_t value_length) noexcept {
  return text_of(file_of(writer)->Put(slice(row, row_length), slice(value, value_length)));
}

char* steelyard_sst_delete(void* writer, const char* row, size_t length) noexcept {
  return text_of(file_of(writer)->Delete(slice(row, length)));
}

char* steelyard_sst_delete_range(void* writer, const char* from, size_t from_length, const char* to,
                                 size_t to_length) noexcept {
  return text_of(file_of(writer)->DeleteRange(slice(from, from_length), slice(to, to_length)));
}

char* steelyard_sst_finish(void* writer) noexcept {
  return text_of(file_of(writer)->Finish());
}

uint64_t steelyard_sst_file_size(void* writer) noexcept {
  return file_of(writer)->FileSize();
}

// The bytes of a file in memory that were not dropped yet. They are valid until the next call.
const char* steelyard_sst_built(void* writer, size_t* length) noexcept {
  const std::string& built = static_cast<Writer*>(writer)->built;
  *length = built.size();
  return built.data();
}

void steelyard_sst_drop_built(void* writer) noexcept { static_cast<Writer*>(writer)->built.clear(); }

void steelyard_sst_free_text(char* text) noexcept { free(text); }

}  // extern "C"
