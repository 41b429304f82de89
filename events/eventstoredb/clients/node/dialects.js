// The two official clients differ in the names of a few things. They cannot be
// loaded into one process: each replaces what the other knows of the protocol.

const dialects = {
	eventstore: {
		module: "@eventstore/db-client",
		connect: (d, server) => d.EventStoreDBClient.connectionString(`esdb://${server}`),
		after: (expected) => ({ expectedRevision: expected }),
		actual: (conflict) => conflict.actualVersion,
	},
	kurrent: {
		module: "@kurrent/kurrentdb-client",
		connect: (d, server) => d.KurrentDBClient.connectionString(`kurrentdb://${server}`),
		after: (expected) => ({ streamState: expected }),
		actual: (conflict) => conflict.actualState,
	},
};

// speak returns the module of a client, and beside its names those that the
// clients have in common: connect makes a client of a server, after says the
// length that an append saw, actual the one that a conflict found.
export async function speak(name) {
	const dialect = dialects[name];
	const d = { ...(await import(dialect.module)), ...dialect, name };
	return { ...d, connect: (server) => dialect.connect(d, server) };
}
