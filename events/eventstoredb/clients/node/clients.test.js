// The official Node clients against the protocol server, which speaks to them
// as a database does. CLIENT is the name of the client, SERVER what stands in a
// connection string behind the scheme, and SESSION a stream of the ledger's own.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { speak } from "./dialects.js";

const { CLIENT, SERVER, SESSION } = process.env;
const patience = { timeout: 20_000 };

// A feed hands out what a subscription delivers, one by one, and remembers that
// it caught up.
class Feed {
	constructor(subscription) {
		this.subscription = subscription;
		this.caughtUp = new Promise((resolve) => subscription.once("caughtUp", resolve));
		this.iterator = subscription[Symbol.asyncIterator]();
	}

	async take(n) {
		const taken = [];
		while (taken.length < n) {
			const { value, done } = await this.iterator.next();
			assert.ok(!done, `the subscription ended after ${taken.length} of ${n} events`);
			taken.push(value);
		}
		return taken;
	}

	async texts(n) {
		return (await this.take(n)).map(({ event }) => event.data.text);
	}

	end() {
		return this.subscription.unsubscribe();
	}
}

async function collect(reading) {
	const all = [];
	for await (const { event } of reading) all.push(event);
	return all;
}

const texts = (events) => events.map((event) => event.data.text);

const d = await speak(CLIENT);
const client = d.connect(SERVER);
after(() => client.dispose());

const said = (text, type = "said") => d.jsonEvent({ type, data: { text }, metadata: { by: d.name } });
const write = (stream, from, to, type) =>
	client.appendToStream(stream, Array.from({ length: to - from }, (_, i) => said(`${from + i}`, type)));

test("an append is read as it was written, both ways", patience, async () => {
	const stream = `shop-${d.name}-append`;
	const events = [said("first"), said("second"), d.binaryEvent({ type: "drawn", data: Uint8Array.of(0, 255, 7) })];
	const result = await client.appendToStream(stream, events, d.after(d.NO_STREAM));
	assert.equal(result.success, true);
	assert.equal(result.nextExpectedRevision, 2n);

	const read = await collect(client.readStream(stream));
	assert.deepEqual(read.map((e) => e.id), events.map((e) => e.id));
	assert.deepEqual(read.map((e) => e.revision), [0n, 1n, 2n]);
	assert.deepEqual(read.map((e) => e.type), ["said", "said", "drawn"]);
	assert.deepEqual(read.map((e) => e.streamId), [stream, stream, stream]);
	assert.deepEqual(read.map((e) => e.isJson), [true, true, false]);
	assert.deepEqual(texts(read.slice(0, 2)), ["first", "second"]);
	assert.deepEqual([...read[2].data], [0, 255, 7]);
	assert.deepEqual(read[0].metadata, { by: d.name });
	// One of the clients tells times to the second.
	assert.ok(Math.abs(Date.now() - read[0].created) < 60_000, `it was created ${read[0].created}`);

	const back = await collect(client.readStream(stream, { direction: d.BACKWARDS, fromRevision: d.END, maxCount: 2 }));
	assert.deepEqual(back.map((e) => e.revision), [2n, 1n]);
	const tail = await collect(client.readStream(stream, { fromRevision: 1n }));
	assert.deepEqual(tail.map((e) => e.revision), [1n, 2n]);
});

test("an append that saw another length is a conflict", patience, async () => {
	const stream = `shop-${d.name}-conflict`;
	await write(stream, 0, 3);
	for (const [expected, actual] of [[d.NO_STREAM, 2n], [0n, 2n], [7n, 2n]]) {
		await assert.rejects(client.appendToStream(stream, said("late"), d.after(expected)), (err) => {
			assert.ok(err instanceof d.WrongExpectedVersionError, `${err}`);
			assert.equal(d.actual(err), actual);
			return true;
		});
	}
	await assert.rejects(client.appendToStream(`${stream}-absent`, said("late"), d.after(d.STREAM_EXISTS)), d.WrongExpectedVersionError);
	assert.equal((await collect(client.readStream(stream))).length, 3);
	const right = await client.appendToStream(stream, said("in time"), d.after(2n));
	assert.equal(right.nextExpectedRevision, 3n);
});

test("an append made again changes nothing", patience, async () => {
	const stream = `shop-${d.name}-again`;
	const events = [said("once"), said("twice")];
	const first = await client.appendToStream(stream, events, d.after(d.NO_STREAM));
	const again = await client.appendToStream(stream, events, d.after(d.NO_STREAM));
	assert.equal(again.nextExpectedRevision, first.nextExpectedRevision);
	assert.deepEqual(texts(await collect(client.readStream(stream))), ["once", "twice"]);
});

test("a stream that is not there is not found", patience, async () => {
	await assert.rejects(collect(client.readStream(`shop-${d.name}-absent`)), d.StreamNotFoundError);
});

test("a subscription catches up and goes on with what is written then", patience, async () => {
	const stream = `shop-${d.name}-live`;
	await write(stream, 0, 300);
	const feed = new Feed(client.subscribeToStream(stream, { fromRevision: d.START }));
	assert.deepEqual(await feed.texts(300), Array.from({ length: 300 }, (_, i) => `${i}`));
	await feed.caughtUp;
	await write(stream, 300, 303);
	assert.deepEqual(await feed.texts(3), ["300", "301", "302"]);
	await feed.end();

	const resumed = new Feed(client.subscribeToStream(stream, { fromRevision: 300n }));
	assert.deepEqual(await resumed.texts(2), ["301", "302"]);
	await resumed.end();
});

test("all is filtered by streams and by types", patience, async () => {
	const [mine, other] = [`filtered-${d.name}`, `shop-${d.name}-beside`];
	const checkpoints = [];
	const byStream = new Feed(client.subscribeToAll({
		fromPosition: d.START,
		filter: d.streamNameFilter({
			prefixes: [mine], checkpointInterval: 1, maxSearchWindow: 4,
			checkpointReached: (_, position) => { checkpoints.push(position); },
		}),
	}));
	const byType = new Feed(client.subscribeToAll({
		fromPosition: d.START, filter: d.eventTypeFilter({ regex: `^wanted-${d.name}$` }),
	}));
	for (const i of [0, 10, 20]) {
		await write(mine, i, i + 2);
		await write(other, i, i + 10);
		await write(other, i, i + 1, `wanted-${d.name}`);
	}
	const seen = await byStream.take(6);
	assert.deepEqual(texts(seen.map(({ event }) => event)), ["0", "1", "10", "11", "20", "21"]);
	assert.ok(seen.every(({ event }) => event.streamId === mine));
	assert.deepEqual(await byType.texts(3), ["0", "10", "20"]);
	await byStream.end();
	await byType.end();
	assert.ok(checkpoints.length > 0, "no checkpoint said how far the search had come");
	const commits = checkpoints.map((p) => p.commit);
	// The one that tells of going live may repeat the one before.
	assert.ok(commits.every((c, i) => i === 0 || c >= commits[i - 1]), `checkpoints went back: ${commits}`);
});

test("a subscription to all resumes behind a position", patience, async () => {
	const stream = `resumed-${d.name}`;
	const filter = d.streamNameFilter({ prefixes: [stream] });
	await write(stream, 0, 20);
	const first = new Feed(client.subscribeToAll({ fromPosition: d.START, filter }));
	const seen = await first.take(7);
	await first.end();
	const { position } = seen.at(-1).event;
	const second = new Feed(client.subscribeToAll({ fromPosition: position, filter }));
	await write(stream, 20, 25);
	assert.deepEqual(await second.texts(18), Array.from({ length: 18 }, (_, i) => `${i + 7}`));
	await second.end();
});

test("all is read both ways from a position", patience, async () => {
	const stream = `shop-${d.name}-all`;
	await write(stream, 0, 3);
	const all = await collect(client.readAll());
	const mine = all.filter((e) => e.streamId === stream);
	assert.deepEqual(texts(mine), ["0", "1", "2"]);
	const forwards = await collect(client.readAll({ fromPosition: mine[1].position, maxCount: 1 }));
	assert.equal(forwards[0].id, mine[1].id, "forwards from a position begins with it");
	const backwards = await collect(client.readAll({ direction: d.BACKWARDS, fromPosition: mine[1].position, maxCount: 1 }));
	assert.equal(backwards[0].id, mine[0].id, "backwards from a position begins before it");
});

test("the ledger's own stream is read and not written", patience, async () => {
	const read = await collect(client.readStream(SESSION));
	assert.deepEqual(read.map((e) => e.type), ["SessionOpened", "PromptAdmitted"]);
	assert.equal(read[1].data.text, "mend the test");
	assert.equal(read[1].metadata.$ledger.v, 1);
	assert.match(read[1].metadata.$causationId, /^evt_/);
	await assert.rejects(client.appendToStream(SESSION, said("mine")), d.AccessDeniedError);
	assert.equal((await collect(client.readStream(SESSION))).length, 2);
});

test("nothing is deleted", patience, async () => {
	const stream = `shop-${d.name}-kept`;
	await write(stream, 0, 1);
	await assert.rejects(client.deleteStream(stream), /a ledger forgets nothing/);
	await assert.rejects(client.tombstoneStream(stream), /a ledger forgets nothing/);
	assert.equal((await collect(client.readStream(stream))).length, 1);
});

test("a group answers for what it is handed", patience, async () => {
	const [stream, group] = [`shop-${d.name}-group`, "packers"];
	const settings = d.persistentSubscriptionToStreamSettingsFromDefaults({ startFrom: d.START, checkPointLowerBound: 1 });
	await write(stream, 0, 4);
	await client.createPersistentSubscriptionToStream(stream, group, settings);
	await assert.rejects(client.createPersistentSubscriptionToStream(stream, group, settings), d.PersistentSubscriptionExistsError);

	const feed = new Feed(client.subscribeToPersistentSubscriptionToStream(stream, group, { bufferSize: 1 }));
	const [kept] = await feed.take(1);
	await feed.subscription.ack(kept);
	const [parked] = await feed.take(1);
	await feed.subscription.nack(d.PARK, "it does not fit", parked);
	const [skipped] = await feed.take(1);
	await feed.subscription.nack(d.SKIP, "nobody wants it", skipped);
	const [retried] = await feed.take(1);
	assert.equal(retried.retryCount, 0);
	await feed.subscription.nack(d.RETRY, "not now", retried);
	const [again] = await feed.take(1);
	assert.equal(again.event.id, retried.event.id);
	assert.equal(again.retryCount, 1);
	await feed.subscription.ack(again);
	assert.deepEqual(texts([kept, parked, skipped, again].map((r) => r.event)), ["0", "1", "2", "3"]);

	// What is parked is replayed once it is on record.
	const parkedCount = async () => (await client.getPersistentSubscriptionToStreamInfo(stream, group)).stats.parkedMessageCount;
	while ((await parkedCount()) < 1n);
	await client.replayParkedMessagesToStream(stream, group);
	const [replayed] = await feed.take(1);
	assert.equal(replayed.event.id, parked.event.id);
	await feed.subscription.ack(replayed);
	await write(stream, 4, 5);
	const [live] = await feed.take(1);
	assert.equal(live.event.data.text, "4");
	await feed.subscription.ack(live);

	const info = await client.getPersistentSubscriptionToStreamInfo(stream, group);
	assert.equal(info.groupName, group);
	assert.equal(info.eventSource, stream);
	assert.equal(info.connections.length, 1);
	const listed = await client.listPersistentSubscriptionsToStream(stream);
	assert.deepEqual(listed.map((g) => g.groupName), [group]);
	await client.updatePersistentSubscriptionToStream(stream, group, { ...settings, maxRetryCount: 3 });
	assert.equal((await client.getPersistentSubscriptionToStreamInfo(stream, group)).settings.maxRetryCount, 3);
	await feed.end().catch(() => {}); // updating ends those who consume
	await client.deletePersistentSubscriptionToStream(stream, group);
	await assert.rejects(client.getPersistentSubscriptionToStreamInfo(stream, group), d.PersistentSubscriptionDoesNotExistError);
});

test("a group reads all through a filter", patience, async () => {
	const [stream, group] = [`grouped-${d.name}`, `counters-${d.name}`];
	await write(stream, 0, 2);
	await client.createPersistentSubscriptionToAll(
		group, d.persistentSubscriptionToAllSettingsFromDefaults({ startFrom: d.START }),
		{ filter: d.streamNameFilter({ prefixes: [stream] }) },
	);
	const feed = new Feed(client.subscribeToPersistentSubscriptionToAll(group));
	const handed = await feed.take(2);
	await feed.subscription.ack(...handed);
	assert.deepEqual(texts(handed.map((r) => r.event)), ["0", "1"]);
	await feed.end();
	await client.deletePersistentSubscriptionToAll(group);
});
