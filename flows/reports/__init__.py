"""Results for people: terminal tables, the report page and timelines for Perfetto."""
