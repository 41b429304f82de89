import assert from "node:assert/strict";
import { test } from "node:test";
import { client, collect, d, limit, said, SESSION, write } from "./kit.js";

test("the ledger's own stream is read and not written", limit, async () => {
	const read = await collect(client.readStream(SESSION));
	assert.deepEqual(read.map((e) => e.type), ["SessionOpened", "PromptAdmitted"]);
	assert.equal(read[1].data.text, "mend the test");
	assert.equal(read[1].metadata.$ledger.v, 1);
	assert.match(read[1].metadata.$causationId, /^evt_/);
	await assert.rejects(client.appendToStream(SESSION, said("mine")), d.AccessDeniedError);
	assert.equal((await collect(client.readStream(SESSION))).length, 2);
});

test("nothing is deleted", limit, async () => {
	const stream = `shop-${d.name}-kept`;
	await write(stream, 0, 1);
	await assert.rejects(client.deleteStream(stream), /a ledger forgets nothing/);
	await assert.rejects(client.tombstoneStream(stream), /a ledger forgets nothing/);
	assert.equal((await collect(client.readStream(stream))).length, 1);
});

test("projections are refused, and the client goes on", limit, async () => {
	const calls = {
		createProjection: ["sums", "fromAll()"],
		updateProjection: ["sums", "fromAll()"],
		deleteProjection: ["sums"],
		enableProjection: ["sums"],
		disableProjection: ["sums"],
		abortProjection: ["sums"],
		resetProjection: ["sums"],
		getProjectionResult: ["sums"],
		getProjectionState: ["sums"],
		getProjectionStatus: ["sums"],
		listProjections: [],
		restartSubsystem: [],
	};
	for (const [name, args] of Object.entries(calls)) {
		await assert.rejects(client[name](...args), /a ledger offers|UNIMPLEMENTED|unsupported/i, name);
	}
	const stream = `shop-${d.name}-projected`;
	await write(stream, 0, 1);
	assert.equal((await collect(client.readStream(stream))).length, 1);
});

// Only the later client can append to several streams at once.
if (d.Client.prototype.multiStreamAppend) {
	test("appends to several streams are refused before anything is written", limit, async () => {
		const streams = [0, 1].map((i) => `shop-${d.name}-several-${i}`);
		const requests = streams.map((streamName) => ({ streamName, expectedState: d.NO_STREAM, events: [said("never")] }));
		await assert.rejects(client.multiStreamAppend(requests), d.UnsupportedError);
		await assert.rejects(client.appendRecords(streams.map((streamName) => ({ streamName, record: said("never") }))), d.UnsupportedError);
		for (const stream of streams) await assert.rejects(collect(client.readStream(stream)), d.StreamNotFoundError);
	});
}
