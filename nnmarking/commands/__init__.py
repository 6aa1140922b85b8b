"""The commands of an instructor, each with add_options(parser) and run(options)."""
