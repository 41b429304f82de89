package main

// The import keeps two known data races of the EventStoreDB client out of the reports
// of the race detector.
import _ "github.com/settlement-ledger/ledger/events/eventstoredb/clientrace"
