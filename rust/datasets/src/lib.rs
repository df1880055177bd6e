//! Readers and writers of multi-label text files.
