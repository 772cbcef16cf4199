"use strict";

// The data that stand beside each figure and table, and files made of them.

function dataOf(element) {
  return JSON.parse(element.querySelector("script.data").textContent);
}

const tablesRead = new Map();

function tableOf(id) {
  if (!tablesRead.has(id)) tablesRead.set(id, dataOf(document.getElementById(id)));
  return tablesRead.get(id);
}

function cell(column, row) {
  const value = column.values[row];
  if (column.numeric) return value;
  return value < 0 ? null : column.levels[value];
}

function rowsWhere(table, where) {
  const tests = table.columns.filter((column) => column.name in where);
  const rows = Array.from({ length: table.rows }, (_, row) => row);
  return rows.filter((row) => tests.every((column) => String(cell(column, row)) === where[column.name]));
}

function csvOf(table, rows) {
  const lines = [table.columns.map((column) => column.name)];
  for (const row of rows) lines.push(table.columns.map((column) => cell(column, row)));
  return lines.map((line) => line.map(csvField).join(",")).join("\r\n") + "\r\n";
}

function csvField(value) {
  const text = value === null ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function saveText(text, name, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  saveUrl(url, name);
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function saveUrl(url, name) {
  const link = document.createElement("a");
  link.href = url;
  link.download = fileName(name);
  link.click();
}

function fileName(name) {
  return name.replace(/[^\p{L}\p{N}._-]+/gu, "-");
}
