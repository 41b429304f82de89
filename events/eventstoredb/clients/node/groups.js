import assert from "node:assert/strict";
import { test } from "node:test";
import { client, counted, d, Feed, limit, texts, write } from "./kit.js";

test("a group answers for what it is handed", limit, async () => {
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

test("a group reads all through a filter", limit, async () => {
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

const toStream = (stream) => ({
	create: (group, settings) => client.createPersistentSubscriptionToStream(stream, group, settings),
	update: (group, settings) => client.updatePersistentSubscriptionToStream(stream, group, settings),
	subscribe: (group, options) => client.subscribeToPersistentSubscriptionToStream(stream, group, options),
	info: (group) => client.getPersistentSubscriptionToStreamInfo(stream, group),
	list: () => client.listPersistentSubscriptionsToStream(stream),
	replay: (group, options) => client.replayParkedMessagesToStream(stream, group, options),
	remove: (group) => client.deletePersistentSubscriptionToStream(stream, group),
	settings: d.persistentSubscriptionToStreamSettingsFromDefaults,
});

const toAll = (stream) => ({
	create: (group, settings) => client.createPersistentSubscriptionToAll(group, settings, { filter: d.streamNameFilter({ prefixes: [stream] }) }),
	update: (group, settings) => client.updatePersistentSubscriptionToAll(group, settings),
	subscribe: (group, options) => client.subscribeToPersistentSubscriptionToAll(group, options),
	info: (group) => client.getPersistentSubscriptionToAllInfo(group),
	list: () => client.listPersistentSubscriptionsToAll(),
	replay: (group, options) => client.replayParkedMessagesToAll(group, options),
	remove: (group) => client.deletePersistentSubscriptionToAll(group),
	settings: d.persistentSubscriptionToAllSettingsFromDefaults,
});

for (const [name, of] of Object.entries({ stream: toStream, all: toAll })) {
	test(`every call about a group of ${name} does as it says`, limit, async () => {
		const [stream, group] = [`grouped-${d.name}-${name}`, `calls-${d.name}-${name}`];
		const calls = of(stream);
		const absent = d.PersistentSubscriptionDoesNotExistError;
		for (const call of [() => calls.info(group), () => calls.update(group, calls.settings()), () => calls.replay(group), () => calls.remove(group)]) {
			await assert.rejects(call, absent);
		}
		await write(stream, 0, 4);
		await calls.create(group, calls.settings({ startFrom: d.START, maxSubscriberCount: 1, checkPointLowerBound: 1, consumerStrategyName: d.DISPATCH_TO_SINGLE }));
		await assert.rejects(calls.create(group, calls.settings()), d.PersistentSubscriptionExistsError);
		assert.ok((await calls.list()).some((g) => g.groupName === group));
		assert.ok((await client.listAllPersistentSubscriptions()).some((g) => g.groupName === group));

		const feed = new Feed(calls.subscribe(group, { bufferSize: 2 }));
		const parked = await feed.take(2);
		await feed.subscription.nack(d.PARK, "it does not fit", ...parked);
		const [kept, last] = await feed.take(2);
		await feed.subscription.ack(kept, last);
		const second = new Feed(calls.subscribe(group));
		await assert.rejects(second.take(1), d.PersistentSubscriptionMaximumSubscribersReachedError);

		while ((await calls.info(group)).stats.parkedMessageCount < 2n);
		await calls.replay(group, { stopAt: 1 });
		const [replayed] = await feed.take(1);
		assert.equal(replayed.event.id, parked[0].event.id);
		await feed.subscription.ack(replayed);
		await calls.replay(group);
		const [rest] = await feed.take(1);
		assert.equal(rest.event.id, parked[1].event.id);
		await feed.subscription.ack(rest);

		await feed.end();
		await calls.remove(group);
		await assert.rejects(calls.subscribe(group)[Symbol.asyncIterator]().next(), absent);
		assert.ok(!(await client.listAllPersistentSubscriptions()).some((g) => g.groupName === group));
	});
}

test("a group keeps the settings that it was given", limit, async () => {
	const [stream, group] = [`shop-${d.name}-settings`, "settings"];
	const settings = d.persistentSubscriptionToStreamSettingsFromDefaults({
		startFrom: 1n, resolveLinkTos: false, extraStatistics: true, messageTimeout: 12_000, maxRetryCount: 4, checkPointAfter: 3_000,
		checkPointLowerBound: 2, checkPointUpperBound: 7, maxSubscriberCount: 3, liveBufferSize: 60, readBatchSize: 10, historyBufferSize: 50,
		consumerStrategyName: d.ROUND_ROBIN,
	});
	await write(stream, 0, 3);
	await client.createPersistentSubscriptionToStream(stream, group, settings);
	const { settings: got } = await client.getPersistentSubscriptionToStreamInfo(stream, group);
	for (const [name, value] of Object.entries(settings)) assert.equal(`${got[name]}`, `${value}`, name);
	const feed = new Feed(client.subscribeToPersistentSubscriptionToStream(stream, group));
	const events = await feed.take(2);
	assert.deepEqual(texts(events.map((r) => r.event)), ["1", "2"]);
	await feed.subscription.ack(...events);
	await feed.end();
	await client.deletePersistentSubscriptionToStream(stream, group);
});

test("members of a group share its events", limit, async () => {
	const [stream, group] = [`shop-${d.name}-shared`, "shared"];
	await client.createPersistentSubscriptionToStream(stream, group, d.persistentSubscriptionToStreamSettingsFromDefaults({ startFrom: d.START, consumerStrategyName: d.ROUND_ROBIN }));
	const members = [0, 1].map(() => new Feed(client.subscribeToPersistentSubscriptionToStream(stream, group, { bufferSize: 1 })));
	while ((await client.getPersistentSubscriptionToStreamInfo(stream, group)).connections.length < 2);
	await write(stream, 0, 10);
	const seen = [];
	await Promise.all(members.map(async (member) => {
		for (;;) {
			const [event] = await Promise.race([member.take(1), new Promise((resolve) => { setTimeout(resolve, 20_000, []).unref(); })]);
			if (!event) return;
			seen.push(event.event.data.text);
			await member.subscription.ack(event);
			if (seen.length === 10) { await Promise.all(members.map((m) => m.end())); return; }
		}
	}).map((taking) => taking.catch((err) => { if (seen.length < 10) throw err; })));
	assert.deepEqual(seen.map(Number).sort((a, b) => a - b), counted(0, 10).map(Number));
	await client.deletePersistentSubscriptionToStream(stream, group);
});

test("the groups can be restarted", limit, async () => {
	await client.restartPersistentSubscriptionSubsystem();
});
