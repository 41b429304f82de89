// The two official clients differ in the names of a few things. They cannot be
// loaded into one process: each replaces what the other knows of the protocol.

const dialects = {
	eventstore: {
		module: "@eventstore/db-client",
		type: "EventStoreDBClient",
		scheme: "esdb",
		after: (expected) => ({ expectedRevision: expected }),
		actual: (conflict) => conflict.actualVersion,
	},
	kurrent: {
		module: "@kurrent/kurrentdb-client",
		type: "KurrentDBClient",
		scheme: "kurrentdb",
		after: (expected) => ({ streamState: expected }),
		actual: (conflict) => conflict.actualState,
	},
};

// speak returns the module of a client with names that both clients have in common:
// Client is its type, connect makes a client of a server (mode is "" or "+discover"),
// after returns the option for the length that an append expects, and actual the
// length that a conflict found.
export async function speak(name) {
	const dialect = dialects[name];
	const module = await import(dialect.module);
	const Client = module[dialect.type];
	const connect = (mode, server) => Client.connectionString(`${dialect.scheme}${mode}://${server}`);
	return { ...module, ...dialect, name, Client, connect };
}
