"""Raw sources: from files as their users have them to raw chunks of one record layout.

    landing.py   which files a source has, their digests, what changed
    records.py   a file as a stream of records (txt, jsonl, csv, parquet; gz, zst)
    texts.py     records to raw documents
    dialogs.py   records to raw dialogs: one recogniser a layout
    raw.py       the stage ``raw/<source>``: files to bounded chunks

Archives (tar, zip) and hub data sets are further ways to get a stream of records: they belong
beside records.py and end in the same texts.py and dialogs.py.
"""
