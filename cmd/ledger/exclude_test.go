package main

import _ "github.com/settlement-ledger/ledger/events/eventstoredb/clientrace"
