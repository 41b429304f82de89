package server_test

import _ "github.com/settlement-ledger/ledger/events/eventstoredb/clientrace"
